package offload

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func FuzzIntents(f *testing.F) {
	b := begun{geometry: Geometry{2, 1}, targets: []string{"a", "b", "c"}, cellBytes: 8 << 20, blockBytes: 1 << 18, inlineBytes: 1 << 16, last: 9, length: 1000}
	f.Add(byte(noteBegin), b.encode(nil))
	c := checkpoint{
		index: 3, next: 10, base: 1000, info: stripe{lengths: []uint32{73, 360}, crcs: []uint32{1, 2, 3}}, contents: make([]contentSum, 2),
		parts:  []sentPart{{etag: "x"}, {missing: true}, {etag: "z"}},
		blocks: []blockRef{{first: 0, cell: 0, stored: 73, raw: 41, crc: 5}, {first: 2, cell: 1, stored: 360, raw: 328, crc: 6}},
	}
	f.Add(byte(noteCheckpoint), c.encode(nil))
	inline := checkpoint{final: true, next: 2, base: 5, inline: []byte("blocks"), blocks: c.blocks, contents: c.contents}
	f.Add(byte(noteCheckpoint), inline.encode(nil))
	f.Fuzz(func(t *testing.T, kind byte, body []byte) {
		r := &reader{b: body}
		switch kind {
		case noteBegin:
			got := decodeBegun(r)
			if r.end() != nil {
				return
			}
			again := &reader{b: got.encode(nil)}
			require.Equal(t, got, decodeBegun(again))
			require.NoError(t, again.end())
		case noteCheckpoint:
			g := Geometry{2, 1}
			got := decodeCheckpoint(r, g)
			if r.end() != nil {
				return
			}
			again := &reader{b: got.encode(nil)}
			require.Equal(t, got, decodeCheckpoint(again, g))
			require.NoError(t, again.end())
		}
	})
}
