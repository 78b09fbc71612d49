package offload

import (
	"bytes"
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/corrupt"
	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/offload/objstore"
)

func TestEveryFlippedBitOfABlockIsNoticed(t *testing.T) {
	c := &blockCodec{digestSize: 4}
	for i, block := range sealGolden(t) {
		for bit := range len(block) * 8 {
			bad := bytes.Clone(block)
			bad[bit/8] ^= 1 << (bit % 8)
			_, err := c.open(bad, uint64(i))
			require.Error(t, err, "block %d, bit %d", i, bit)
		}
		for n := range block {
			_, err := c.open(block[:n], uint64(i))
			require.Error(t, err)
		}
	}
}

func TestEveryFlippedBitOfAManifestIsNoticed(t *testing.T) {
	b := slowManifest()
	for bit := range len(b) * 8 {
		bad := bytes.Clone(b)
		bad[bit/8] ^= 1 << (bit % 8)
		_, err := DecodeManifest("m", bad)
		require.Error(t, err, "bit %d", bit)
		require.True(t, corrupt.Is(err), "bit %d: %v", bit, err)
	}
	for n := range b {
		_, err := DecodeManifest("m", b[:n])
		require.True(t, corrupt.Is(err), "cut at %d", n)
	}
}

func TestStatement09NewerVersionsAreRefusedWithBothVersions(t *testing.T) {
	m := goldenManifest()
	base := []section{
		{sectionLedger, mustUnderstand, m.encodeLedger()}, {sectionGeometry, mustUnderstand, m.encodeGeometry()}, {sectionPlacement, mustUnderstand, m.encodePlacement()},
		{sectionStripes, mustUnderstand, m.encodeStripes()}, {sectionBlocks, mustUnderstand, m.encodeBlocks()}, {sectionKeys, mustUnderstand, m.encodeKeys()},
	}
	b, err := encodeSections(42, m.Attempt, append(base[:6:6], section{40, 0, []byte("later")}))
	require.NoError(t, err)
	got, err := DecodeManifest("m", b)
	require.NoError(t, err, "an optional section is skipped")
	require.Equal(t, m, got)

	b, err = encodeSections(42, m.Attempt, append(base[:6:6], section{40, mustUnderstand, []byte("later")}))
	require.NoError(t, err)
	_, err = DecodeManifest("m", b)
	require.ErrorIs(t, err, ErrVersion)
	require.ErrorContains(t, err, "version 1.0, has section 40, which this program (manifest version 1.0)")

	b = slowManifest()
	binary.BigEndian.PutUint16(b[8:], 2)
	binary.BigEndian.PutUint16(b[10:], 7)
	binary.BigEndian.PutUint32(b[60:], objstore.CRC32C(b[:60]))
	_, err = DecodeManifest("m", b)
	require.ErrorIs(t, err, ErrVersion)
	require.ErrorContains(t, err, "version 2.7, this program reads 1.x")

	r := bytes.Replace(slowRecord(), []byte("\t1\n"), []byte("\t3\n"), 1)
	_, err = DecodeRecord("r", r)
	require.ErrorIs(t, err, ErrVersion)
	require.ErrorContains(t, err, "has version 3, this program reads 1")
	require.False(t, corrupt.Is(err))
}

func TestManifestsThatContradictThemselvesAreRefused(t *testing.T) {
	for name, change := range map[string]func(*Manifest){
		"no blocks":                    func(m *Manifest) { m.blocks = nil },
		"entries":                      func(m *Manifest) { m.Entries = 5 },
		"digest":                       func(m *Manifest) { m.Digest = 9 },
		"key without encryption":       func(m *Manifest) { m.Encryption = EncryptNone },
		"first block":                  func(m *Manifest) { m.blocks[0].first = 1 },
		"block behind its cell":        func(m *Manifest) { m.blocks[1].stored = 361 },
		"block shorter than its cell":  func(m *Manifest) { m.blocks[0].stored = 72 },
		"shard length":                 func(m *Manifest) { m.Shards[0].Length++ },
		"shard checksum":               func(m *Manifest) { m.Shards[2].CRC32C++ },
		"too few shards":               func(m *Manifest) { m.Shards = m.Shards[:2] },
		"last block behind the end":    func(m *Manifest) { m.blocks[1].first = 4 },
		"too many entries for a block": func(m *Manifest) { m.LastEntry, m.Entries = 100_000, 100_001 },
		"inline and striped":           func(m *Manifest) { m.Inline = make([]byte, 433) },
	} {
		m := goldenManifest()
		change(m)
		b, err := m.Encode()
		require.NoError(t, err, name)
		_, err = DecodeManifest("m", b)
		require.True(t, corrupt.Is(err), "%s: %v", name, err)
	}
}

func TestManifestOfManyPages(t *testing.T) {
	m := goldenManifest()
	m.Geometry = Geometry{2, 1}
	m.blocks, m.stripes = nil, nil
	perCell := 100
	cells := 2 * 60
	for c := range cells {
		for b := range perCell {
			m.blocks = append(m.blocks, blockRef{
				first: ledger.EntryID(len(m.blocks) * 3), cell: uint32(c), number: uint32(len(m.blocks)), offset: uint32(b * 500), stored: 500, raw: 468, crc: uint32(len(m.blocks) * 7),
			})
		}
	}
	for range cells / 2 {
		m.stripes = append(m.stripes, stripe{lengths: []uint32{50_000, 50_000}, crcs: []uint32{1, 2, 3}})
	}
	m.LastEntry = ledger.EntryID(len(m.blocks)*3 - 1)
	m.Entries = int64(m.LastEntry) + 1
	for i, s := range shardSums(m.Geometry, m.stripes) {
		m.Shards[i].Length, m.Shards[i].CRC32C = s.length, s.crc
	}
	b, err := m.Encode()
	require.NoError(t, err)
	got, err := DecodeManifest("m", b)
	require.NoError(t, err)
	require.Equal(t, m, got)
	require.Less(t, len(b), len(m.blocks)*13, "about 12 bytes a block")
	for e := ledger.EntryID(0); e <= m.LastEntry; e += 7 {
		require.EqualValues(t, e/3, got.blockOf(e))
	}
	require.EqualValues(t, len(m.blocks)-1, got.blockOf(math.MaxInt64))
}

func TestRecordKeepsWhatItDoesNotKnow(t *testing.T) {
	r := goldenRecord()
	r.Unknown = putInt(nil, 99, 7)
	r.Placement[0].Unknown = putBytes(nil, 50, []byte("x"))
	r.Garbage[0].Unknown = putInt(nil, 51, 1)
	b, err := EncodeRecord(r)
	require.NoError(t, err)
	got, err := DecodeRecord("r", b)
	require.NoError(t, err)
	require.Equal(t, r, got)
	require.Equal(t, 1, got.Missing())
	c := got.Clone()
	require.Equal(t, got, c)
	c.Placement[1].Move.Target, c.Garbage[0].Passes = "other", 9
	require.Equal(t, r, got)
}

func TestRecordTooLargeSaysSo(t *testing.T) {
	r := goldenRecord()
	r.LedgerMetadata = make([]byte, RecordMax)
	_, err := EncodeRecord(r)
	require.ErrorContains(t, err, "too many fragments")
}

func FuzzBlock(f *testing.F) {
	for _, entries := range goldenLedger() {
		f.Add(slowBlock(entries[0].ID, 10, entries), 4)
	}
	f.Add(appendFill(nil, 7, 100), 4)
	f.Fuzz(func(t *testing.T, b []byte, digestSize int) {
		if digestSize < 0 || digestSize > 20 {
			return
		}
		if len(b) >= blockHeaderSize {
			putBlockCRC(b) // reach what lies behind the checksum
		}
		c := &blockCodec{digestSize: digestSize}
		got, err := c.open(b, 0)
		if err != nil {
			return
		}
		for i := range got.Entries {
			require.Equal(t, got.First+ledger.EntryID(i), got.Entries[i].ID)
			require.Len(t, got.Entries[i].Digest, digestSize)
		}
	})
}

func FuzzManifest(f *testing.F) {
	f.Add(slowManifest())
	m := goldenManifest()
	m.Inline, m.stripes = make([]byte, 433), nil
	m.blocks[1].cell, m.blocks[1].offset = 0, 73
	for i := range m.Shards {
		m.Shards[i].Length, m.Shards[i].CRC32C = 0, 0
	}
	inline, err := m.Encode()
	require.NoError(f, err)
	f.Add(inline)
	f.Fuzz(func(t *testing.T, b []byte) {
		resum(b)
		m, err := DecodeManifest("m", b)
		if err != nil {
			return
		}
		for i := range m.blocks {
			if n := m.entriesOf(i); n > 0 {
				require.Equal(t, i, m.blockOf(m.blocks[i].first))
			}
		}
		again, err := m.Encode()
		require.NoError(t, err)
		got, err := DecodeManifest("m", again)
		require.NoError(t, err)
		require.Equal(t, m, got)
	})
}

// resum makes the checksums of a manifest right, so that fuzzing reaches what lies behind them.
func resum(b []byte) {
	if len(b) < manifestHeaderSize+manifestTrailerSize {
		return
	}
	binary.BigEndian.PutUint32(b[60:], objstore.CRC32C(b[:60]))
	trailer := len(b) - manifestTrailerSize
	for i := range int(min(binary.BigEndian.Uint32(b[48:]), 16)) {
		at := manifestHeaderSize + i*manifestDirSize
		if at+manifestDirSize > trailer {
			break
		}
		start, n := binary.BigEndian.Uint64(b[at+8:]), binary.BigEndian.Uint64(b[at+16:])
		if start <= uint64(trailer) && n <= uint64(trailer)-start {
			body := b[start : start+n]
			if binary.BigEndian.Uint16(b[at:]) == sectionBlocks && len(body) >= 40 {
				binary.BigEndian.PutUint32(body[36:], objstore.CRC32C(body[40:]))
			}
			binary.BigEndian.PutUint32(b[at+4:], objstore.CRC32C(body))
		}
	}
	binary.BigEndian.PutUint32(b[trailer:], objstore.CRC32C(b[:trailer]))
}

func FuzzRecord(f *testing.F) {
	f.Add(slowRecord())
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := DecodeRecord("r", b)
		if err != nil {
			return
		}
		again, err := EncodeRecord(r)
		if err != nil {
			return
		}
		got, err := DecodeRecord("r", again)
		require.NoError(t, err)
		require.Equal(t, r, got)
	})
}
