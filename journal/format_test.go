package journal

import (
	"bytes"
	"flag"
	"hash/crc32"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/vfs"
	"github.com/binderylog/bindery/internal/vfs/memfs"
)

var update = flag.Bool("update", false, "rewrite golden files")

// goldenSegment builds a segment with fixed ids, salt and times: a fresh header, a group of three records, an empty group,
// and a group in two blocks.
func goldenSegment() []byte {
	h := segmentHeader{flags: flagFresh | flagZeroed, id: 7, salt: 0x1122334455667788, size: 16 * vfs.Align,
		first: 7 << runShift, prev: 5, prevLast: 5<<runShift + 41, created: 1_700_000_000_000_000_000}
	b := make([]byte, segmentHeaderBytes)
	h.encode(b)
	seg := &segment{id: 7, seal: sealOf(h.salt), off: segmentHeaderBytes}
	seq := h.first
	write := func(durable uint64, records ...[]byte) {
		g := &group{buf: make([]byte, 8*vfs.Align), used: groupHeaderBytes, seg: seg, seq: seq, off: int64(len(b)), s: durable}
		for i, r := range records {
			g.add(uint8(i+1), uint64(1000+i), r, crc32.Checksum(r, castagnoli))
		}
		b = append(b, g.bytes(1_700_000_000_000_000_123)...)
		seq++
	}
	write(h.prevLast, []byte("first"), nil, []byte("third record"))
	write(h.first)
	write(h.first+1, bytes.Repeat([]byte("0123456789abcdef"), 300))
	return append(b, make([]byte, 16*vfs.Align-len(b))...)
}

// TestGoldenSegment: version 1 is written and read as the file in testdata says, for ever.
func TestGoldenSegment(t *testing.T) {
	name := filepath.Join("testdata", "segment-v1.jnl")
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(name, trimZeros(goldenSegment()), 0o644))
	}
	want, err := os.ReadFile(name)
	require.NoError(t, err)
	require.Equal(t, want, trimZeros(goldenSegment()), "the format changed: that needs a new version")

	mem := memfs.New("/j/current")
	f, err := mem.Open("/j/current/0000000000000007.jnl", vfs.Mode{Write: true, Create: true})
	require.NoError(t, err)
	_, err = f.WriteAt(append(want, make([]byte, 16*vfs.Align-len(want))...), 0)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	j := mustOpen(t, mem, "/j", smallOptions())
	defer j.Close() //nolint:errcheck // never started
	var got []Record
	r, err := j.Replay(0, func(r Record) error {
		r.Payload = bytes.Clone(r.Payload)
		got = append(got, r)
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, Replayed{End: 7<<20 + 3, Segments: 1, Records: 4, Bytes: 17 + 4800, Whole: true}, r)
	require.Equal(t, Record{Position: 7 << 20, Segment: 7, Offset: 4096 + 64, Kind: 1, Tag: 1000, Payload: []byte("first")}, got[0])
	require.Equal(t, Record{Position: 7 << 20, Segment: 7, Offset: 4096 + 64 + 25, Kind: 2, Tag: 1001, Payload: []byte{}}, got[1])
	require.Equal(t, Record{Position: 7 << 20, Segment: 7, Offset: 4096 + 64 + 45, Kind: 3, Tag: 1002, Payload: []byte("third record")}, got[2])
	require.Equal(t, Record{Position: 7<<20 + 2, Segment: 7, Offset: 12288 + 64, Kind: 1, Tag: 1000, Payload: bytes.Repeat([]byte("0123456789abcdef"), 300)}, got[3])
}

func trimZeros(b []byte) []byte { return bytes.TrimRight(b, "\x00") }

func TestSegmentHeaderRoundTrip(t *testing.T) {
	h := segmentHeader{version: formatVersion, flags: flagFresh, id: 1 << 60, salt: 3, size: 1 << 20, first: 9, prev: 8, prevLast: 7, created: -1}
	b := make([]byte, segmentHeaderBytes)
	h.encode(b)
	got, repaired, err := decodeSegmentHeader(b)
	require.NoError(t, err)
	require.False(t, repaired)
	require.Equal(t, h, got)

	for bit := range segmentHeaderUsed * 8 { // any damage to one copy leaves the other
		c := bytes.Clone(b)
		c[bit/8] ^= 1 << (bit % 8)
		got, repaired, err := decodeSegmentHeader(c)
		require.NoError(t, err)
		require.True(t, repaired)
		require.Equal(t, h, got)
	}
	_, _, err = decodeSegmentHeader(make([]byte, segmentHeaderBytes))
	require.Error(t, err)
	_, _, err = decodeSegmentHeader(nil)
	require.Error(t, err)

	other := h
	other.id++
	c := make([]byte, segmentHeaderBytes)
	other.encode(c)
	copy(b[segmentHeaderCopy:], c[segmentHeaderCopy:])
	_, _, err = decodeSegmentHeader(b)
	require.ErrorContains(t, err, "disagree")
}

// TestNewerFormatIsRefused: a directory of a later version is not read, and not taken for damage.
func TestNewerFormatIsRefused(t *testing.T) {
	b := goldenSegment()
	b[8], b[segmentHeaderCopy+8] = 2, 2
	mem := memfs.New("/j/current")
	f, err := mem.Open("/j/current/0000000000000007.jnl", vfs.Mode{Write: true, Create: true})
	require.NoError(t, err)
	_, err = f.WriteAt(b, 0)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	_, err = Open(mem, "/j", smallOptions())
	require.ErrorIs(t, err, ErrFormatTooNew)
	require.ErrorContains(t, err, "0000000000000007.jnl")
}

// TestHeadersParseInTheirPlaceOnly: another salt, segment, offset, sequence or place in the group, and the bytes are not
// a header.
func TestHeadersParseInTheirPlaceOnly(t *testing.T) {
	s := sealOf(42)
	g := groupHeader{segment: 3, sequence: 99, durable: 98, records: 1, payload: 20, written: 5}
	b := make([]byte, groupHeaderBytes)
	g.encode(b, s.group(8192))
	got, ok := decodeGroupHeader(b, 3, s.group(8192))
	require.True(t, ok)
	require.Equal(t, g, got)
	for name, try := range map[string]seal{"salt": sealOf(43).group(8192), "offset": s.group(4096)} {
		_, ok = decodeGroupHeader(b, 3, try)
		require.False(t, ok, name)
	}
	_, ok = decodeGroupHeader(b, 4, s.group(8192))
	require.False(t, ok, "segment")
	_, ok = decodeGroupHeader(b[:63], 3, s.group(8192))
	require.False(t, ok, "short")

	r := make([]byte, RecordOverhead)
	putRecordHeader(r, 200, 1<<63+5, 1<<24-1, 0xdeadbeef, s.record(99, 64))
	rec, ok := decodeRecordHeader(r, s.record(99, 64))
	require.True(t, ok)
	require.Equal(t, recordHeader{kind: 200, tag: 1<<63 + 5, length: 1<<24 - 1, crc: 0xdeadbeef}, rec)
	for name, try := range map[string]seal{
		"salt": sealOf(43).record(99, 64), "sequence": s.record(100, 64), "place": s.record(99, 84),
	} {
		_, ok = decodeRecordHeader(r, try)
		require.False(t, ok, name)
	}
	// The payload checksum depends on the salt as well: the same header bytes under another seal name another one.
	require.NotEqual(t, s.mask, sealOf(43).mask)
}

// TestRepairBit: every single flipped bit of a header is put right; two are not mistaken for one.
func TestRepairBit(t *testing.T) {
	s := sealOf(7).record(5, 64)
	want := make([]byte, RecordOverhead)
	putRecordHeader(want, 1, 77, 1234, 99, s)
	every := 1
	if raceEnabled || testing.Short() {
		every = 7
	}
	for i := 0; i < len(want)*8; i += every {
		b := bytes.Clone(want)
		b[i/8] ^= 1 << (i % 8)
		require.True(t, repairBit(b, s))
		require.Equal(t, want, b)
		for k := range i {
			b[i/8] ^= 1 << (i % 8)
			b[k/8] ^= 1 << (k % 8)
			require.False(t, repairBit(b, s), "bits %d and %d", i, k)
			b[k/8] ^= 1 << (k % 8)
			b[i/8] ^= 1 << (i % 8)
		}
	}
}

func TestGroupHeaderRefusesNonsense(t *testing.T) {
	s := sealOf(1)
	for name, g := range map[string]groupHeader{
		"no sequence":             {segment: 1},
		"durable from the future": {segment: 1, sequence: 5, durable: 5},
		"too many records":        {segment: 1, sequence: 5, durable: 4, records: 3, payload: 59},
		"payload without records": {segment: 1, sequence: 5, durable: 4, payload: 20},
		"larger than any segment": {segment: 1, sequence: 5, durable: 4, records: 1, payload: SegmentSizeMax},
	} {
		b := make([]byte, groupHeaderBytes)
		g.encode(b, s)
		_, ok := decodeGroupHeader(b, 1, s)
		require.False(t, ok, name)
	}
}
