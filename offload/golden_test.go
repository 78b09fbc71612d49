package offload

import (
	"encoding/binary"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/zeebo/xxh3"

	"github.com/binderylog/bindery/internal/ledger"
)

// Golden files hold what this format is, for ever. The slow path below writes them, byte by byte as docs/formats/offload.md
// says, and shares nothing with the code that it checks. -update writes them anew: for a new version of the format only.
var update = flag.Bool("update", false, "write the golden files from the slow path")

// slowCRC is CRC32C bit by bit.
func slowCRC(b []byte) uint32 {
	crc := ^uint32(0)
	for _, c := range b {
		crc ^= uint32(c)
		for range 8 {
			if crc&1 != 0 {
				crc = crc>>1 ^ 0x82f63b78
			} else {
				crc >>= 1
			}
		}
	}
	return ^crc
}

type slow []byte

func (s *slow) bytes(b ...byte) *slow { *s = append(*s, b...); return s }
func (s *slow) str(v string) *slow    { *s = append(*s, v...); return s }
func (s *slow) num(v uint64, width int) *slow {
	for i := width - 1; i >= 0; i-- {
		*s = append(*s, byte(v>>(8*i)))
	}
	return s
}
func (s *slow) varint(v uint64) *slow {
	for ; v > 127; v /= 128 {
		*s = append(*s, byte(v%128+128))
	}
	*s = append(*s, byte(v))
	return s
}
func (s *slow) zigzag(v int64) *slow {
	if v < 0 {
		return s.varint(uint64(-v)*2 - 1)
	}
	return s.varint(uint64(v) * 2)
}

func slowBlock(first ledger.EntryID, base int64, entries []Entry) []byte {
	var lengths, lags, skews, digests, payloads slow
	skewed, sum := false, base
	for i, e := range entries {
		sum += int64(len(e.Payload))
		lengths.varint(uint64(len(e.Payload)))
		lags.zigzag(int64(first) + int64(i) - 1 - int64(e.LAC))
		skews.zigzag(e.Length - sum)
		skewed = skewed || e.Length != sum
		digests.bytes(e.Digest...)
		payloads.bytes(e.Payload...)
	}
	var body slow
	body.varint(uint64(base)).bytes(lengths...).bytes(lags...)
	flags := byte(0)
	if skewed {
		body.bytes(skews...)
		flags = 4
	}
	body.bytes(digests...).bytes(payloads...)
	var b slow
	b.str("BKOB").bytes(1, flags).num(32, 2).num(uint64(first), 8).num(uint64(len(entries)), 4).num(uint64(len(body)), 4).num(uint64(len(body)), 4)
	crc := slowCRC(append(append([]byte{}, b...), body...))
	b.num(uint64(crc), 4).bytes(body...)
	return b
}

// goldenLedger has two blocks of two entries, one with lengths out of line.
func goldenLedger() (blocks [][]Entry) {
	e := func(id, lac, length int64, payload string) Entry {
		return Entry{ID: ledger.EntryID(id), LAC: ledger.EntryID(lac), Length: length, Digest: []byte{0xd0, byte(id), 0, 1}, Payload: []byte(payload)}
	}
	return [][]Entry{
		{e(0, -1, 5, "first"), e(1, 0, 5, "")},
		{e(2, 3, 11, "third"), e(3, -1, 300, string(make([]byte, 290)))},
	}
}

func sealGolden(t *testing.T) [][]byte {
	t.Helper()
	c, b := &blockCodec{digestSize: 4}, newBlockBuilder(4)
	base := int64(0)
	var out [][]byte
	for i, entries := range goldenLedger() {
		b.reset(entries[0].ID, base)
		for j := range entries {
			require.NoError(t, b.add(&entries[j]))
		}
		got, _, err := c.seal(nil, b, uint64(i), false, false)
		require.NoError(t, err)
		base += b.sum
		out = append(out, got)
	}
	return out
}

func golden(t *testing.T, name string, want []byte) []byte {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(path, want, 0o644))
	}
	stored, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, stored, want, "the slow path still writes %s", name)
	return stored
}

func goldenManifest() *Manifest {
	m := &Manifest{
		Ledger: 42, Attempt: AttemptID{0x3f, 0x9a, 15: 0xe1}, LedgerMetadata: []byte("metadata"), LastEntry: 3, Length: 300, Entries: 4,
		Digest: ledger.DigestCRC32C, Content: [16]byte{0xc0, 15: 0xde}, Geometry: Geometry{2, 1}, CellBytes: 8 << 20, BlockBytes: 256 << 10,
		Compression: CompressAuto, Encryption: EncryptAESGCM, Writer: "w", Key: &WrappedKey{KeyID: "key", Algorithm: "a", Key: []byte{1, 2, 3}},
		Shards:  []Shard{{"t1", 0, 73, 0}, {"t2", 0, 360, 0}, {"t3", 7, 360, 0}},
		stripes: []stripe{{lengths: []uint32{73, 360}, crcs: []uint32{0x11111111, 0x22222222, 0x33333333}}},
		blocks: []blockRef{
			{first: 0, cell: 0, number: 0, offset: 0, stored: 73, raw: 41, crc: 0xaaaaaaaa},
			{first: 2, cell: 1, number: 1, offset: 0, stored: 360, raw: 328, crc: 0xbbbbbbbb},
		},
	}
	for i := range m.Shards {
		m.Shards[i].CRC32C = m.stripes[0].crcs[i]
	}
	return m
}

func slowManifest() []byte {
	var ledgerS, geometry, placement, stripes, page, blocks, keys slow
	ledgerS.num(8, 4).str("metadata").num(3, 8).num(300, 8).num(4, 8).bytes(3).bytes(0xc0).bytes(make([]byte, 14)...).bytes(0xde)
	geometry.bytes(2, 1).num(8<<20, 4).num(1, 2).num(256<<10, 4).bytes(2, 1).num(1, 2).str("w")
	placement.bytes(3)
	for i, s := range []struct {
		t    string
		g, n uint64
	}{{"t1", 0, 73}, {"t2", 0, 360}, {"t3", 7, 360}} {
		placement.num(2, 2).str(s.t).num(s.g, 4).num(s.n, 8).num(uint64(0x11111111*(i+1)), 4)
	}
	stripes.num(1, 4).varint(73).varint(360).num(0x11111111, 4).num(0x22222222, 4).num(0x33333333, 4)
	page.varint(0).varint(0).varint(0).varint(2).bytes(0b10).varint(73).varint(360).varint(41).varint(328).num(0xaaaaaaaa, 4).num(0xbbbbbbbb, 4)
	blocks.num(2, 8).num(1, 4).num(0, 8).num(0, 8).num(12+28, 8).num(uint64(slowCRC(page)), 4).bytes(page...)
	keys.num(3, 2).str("key").num(1, 2).str("a").num(3, 2).bytes(1, 2, 3)

	sections := [][]byte{ledgerS, geometry, placement, stripes, blocks, keys}
	total := 64 + 24*len(sections) + 16
	for _, s := range sections {
		total += len(s)
	}
	var b slow
	b.str("BKOMFST1").num(1, 2).num(0, 2).num(64, 4).num(uint64(total), 8).num(42, 8)
	b.bytes(0x3f, 0x9a).bytes(make([]byte, 13)...).bytes(0xe1).num(uint64(len(sections)), 4).num(0, 8)
	b.num(uint64(slowCRC(b)), 4)
	at := 64 + 24*len(sections)
	for i, s := range sections {
		b.num(uint64(i+1), 2).num(1, 2).num(uint64(slowCRC(s)), 4).num(uint64(at), 8).num(uint64(len(s)), 8)
		at += len(s)
	}
	for _, s := range sections {
		b.bytes(s...)
	}
	b.num(uint64(slowCRC(b)), 4).num(uint64(total), 4).str("BKOMFEND")
	return b
}

func TestStatement02GoldenBlocks(t *testing.T) {
	var cell []byte
	base := int64(0)
	for i, entries := range goldenLedger() {
		want := slowBlock(entries[0].ID, base, entries)
		require.Equal(t, want, sealGolden(t)[i], "block %d", i)
		for _, e := range entries {
			base += int64(len(e.Payload))
		}
		cell = append(cell, want...)
	}
	stored := golden(t, "cell-v1.bin", cell)
	c := &blockCodec{digestSize: 4}
	for _, entries := range goldenLedger() {
		h, err := parseBlockHeader(stored)
		require.NoError(t, err)
		b, err := c.open(stored[:blockHeaderSize+h.stored], 0)
		require.NoError(t, err)
		require.Equal(t, entries, b.Entries)
		stored = stored[blockHeaderSize+h.stored:]
	}
	require.Empty(t, stored)
}

func TestStatement02GoldenManifest(t *testing.T) {
	stored := golden(t, "manifest-v1.bin", slowManifest())
	got, err := DecodeManifest("golden", stored)
	require.NoError(t, err)
	require.Equal(t, goldenManifest(), got)
	again, err := got.Encode()
	require.NoError(t, err)
	require.Equal(t, stored, again)
}

func goldenRecord() *Record {
	return &Record{
		State: StateComplete, Attempt: AttemptID{1, 15: 2}, Number: 3, Worker: "w", Geometry: Geometry{2, 1}, CellBytes: 8 << 20,
		Placement: []Placement{{Target: "t1"}, {Target: "t2", Generation: 1, Missing: true, Move: &Move{Target: "t4", Generation: 2}}, {Target: "t3"}},
		Manifest:  ManifestRef{Length: 500, CRC32C: 0xdeadbeef, Targets: []string{"t1", "t2"}},
		LastEntry: 3, Length: 300, LedgerMetadata: []byte("m"), Key: &WrappedKey{KeyID: "k", Algorithm: "a", Key: []byte{9}},
		StartedAt: 1000, CompletedAt: 2000, VerifiedAt: 3000,
		Garbage: []Garbage{{Attempt: AttemptID{7}, Targets: []string{"t1", "t2"}, Since: 4, Passes: 1, PassAt: 5}},
		Stale:   []Stale{{Attempt: AttemptID{8}, Shard: 1, Target: "t9", Generation: 0, Since: 6}},
	}
}

func slowRecord() []byte {
	var b slow
	tag := func(s *slow, num, wire uint64) *slow { return s.varint(num*8 + wire) }
	num := func(s *slow, n, v uint64) { tag(s, n, 0).varint(v) }
	str := func(s *slow, n uint64, v string) { tag(s, n, 2).varint(uint64(len(v))).str(v) }
	num(&b, 1, 2)
	str(&b, 2, "\x01"+string(make([]byte, 14))+"\x02")
	num(&b, 3, 3)
	str(&b, 4, "w")
	num(&b, 5, 2)
	num(&b, 6, 1)
	num(&b, 7, 8<<20)
	str(&b, 9, "\x0a\x02t1")
	str(&b, 9, "\x0a\x02t2\x10\x01\x18\x01\x22\x06\x0a\x02t4\x10\x02")
	str(&b, 9, "\x0a\x02t3")
	num(&b, 10, 500)
	num(&b, 11, 0xdeadbeef)
	str(&b, 12, "t1")
	str(&b, 12, "t2")
	num(&b, 13, 3)
	num(&b, 14, 300)
	str(&b, 15, "m")
	str(&b, 16, "\x0a\x01k\x12\x01a\x1a\x01\x09")
	num(&b, 17, 1000)
	num(&b, 18, 2000)
	num(&b, 20, 3000)
	str(&b, 21, "\x0a\x10\x07"+string(make([]byte, 15))+"\x12\x02t1\x12\x02t2\x18\x04\x20\x01\x28\x05")
	str(&b, 22, "\x2a\x10\x08"+string(make([]byte, 15))+"\x08\x01\x12\x02t9\x20\x06")
	var out slow
	out.str("BinderyOffloadFormatVersion\t1\n").varint(uint64(len(b))).bytes(b...)
	return out
}

func TestGoldenRecord(t *testing.T) {
	stored := golden(t, "record-v1.bin", slowRecord())
	got, err := DecodeRecord("golden", stored)
	require.NoError(t, err)
	require.Equal(t, goldenRecord(), got)
	again, err := EncodeRecord(got)
	require.NoError(t, err)
	require.Equal(t, stored, again)
}

func TestCRCs(t *testing.T) {
	require.EqualValues(t, 0xe3069283, slowCRC([]byte("123456789")))
	b := make([]byte, 3000)
	for i := range b {
		b[i] = byte(i * i)
	}
	for _, cut := range []int{0, 1, 7, 1500, 2999, 3000} {
		require.Equal(t, slowCRC(b), crcCombine(slowCRC(b[:cut]), slowCRC(b[cut:]), int64(len(b)-cut)))
	}
}

func TestContentDigestIsOverIdsAndPayloads(t *testing.T) {
	var sums []contentSum
	var all []byte
	b := newBlockBuilder(4)
	for _, entries := range goldenLedger() {
		b.reset(entries[0].ID, 0)
		var plain []byte
		for i := range entries {
			require.NoError(t, b.add(&entries[i]))
			plain = binary.BigEndian.AppendUint64(plain, uint64(entries[i].ID))
			plain = append(plain, entries[i].Payload...)
		}
		want := xxh3.Hash128(plain).Bytes()
		require.Equal(t, contentSum(want), b.content())
		sums, all = append(sums, b.content()), append(all, want[:]...)
	}
	require.Equal(t, contentSum(xxh3.Hash128(all).Bytes()), digestOf(sums))
}
