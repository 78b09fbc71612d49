package offload

import (
	"errors"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/corrupt"
	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/offload/objstore"
	"github.com/binderylog/bindery/offload/objstore/faulty"
	"github.com/binderylog/bindery/offload/objstore/mem"
)

// manyBlocks has a ledger of a block per entry, with fill blocks between them, on three targets.
func manyBlocks(t *testing.T, change func(*Options)) (*world, *testLedger, *Worker) {
	t.Helper()
	w := newWorld(t, "a", "b", "c")
	l := w.add(ledgerSpec{sizes: sizes(13_000, func(i int) int {
		if i%5000 == 4999 {
			return CellBytesMin - 200_000
		}
		return 20 + i%7
	})})
	x := w.worker("w", func(o *Options) {
		o.Geometry = Geometry{2, 1}
		change(o)
	})
	x.o.BlockBytes, x.t.wholeMax = 1, 1
	require.NoError(t, x.Offload(t.Context(), l.id))
	return w, l, x
}

func TestLargeManifestsAreReadByPages(t *testing.T) {
	keys := &Keys{Current: "k", ByID: map[string][]byte{"k": make([]byte, 32)}}
	w, l, x := manyBlocks(t, func(o *Options) { o.Keys, o.Encryption = keys, EncryptAESGCM })
	defer x.Close()
	var found []Finding
	r := w.reader(func(o *ReaderOptions) {
		o.Keys, o.NoHedge, o.Report = keys, true, func(f Finding) { found = append(found, f) }
	})
	r.t.wholeMax = 1
	before := w.requests(objstore.OpGet)
	h, err := r.Open(t.Context(), l.id)
	require.NoError(t, err)
	require.Len(t, h.c.manifest.pages.refs, 4)
	require.Greater(t, h.c.manifest.Blocks(), 13_000, "fill blocks count")
	require.Empty(t, h.c.manifest.blocks)
	require.LessOrEqual(t, w.requests(objstore.OpGet)-before, 3, "the front, and what stands before and behind the pages")
	before = w.requests(objstore.OpGet)
	e, err := h.Entry(t.Context(), 12_000)
	require.NoError(t, err)
	require.Equal(t, l.bodies[12_000], e.AppendBody(nil, l.id))
	require.Equal(t, 2, w.requests(objstore.OpGet)-before, "a page and a block")
	n := 0
	for e, err := range h.Entries(t.Context(), 0, h.LastEntry()) {
		require.NoError(t, err)
		require.EqualValues(t, n, e.ID)
		require.Equal(t, l.bodies[n], e.AppendBody(nil, l.id))
		n++
	}
	require.Equal(t, 13_000, n)
	_, err = h.Entry(t.Context(), 13_000)
	require.ErrorIs(t, err, ErrNoEntry)
	findings, err := x.VerifyAgainstBookies(t.Context(), l.id)
	require.NoError(t, err)
	require.Empty(t, findings)
	_, err = x.Verify(t.Context(), l.id, VerifySample)
	require.NoError(t, err)
	require.Empty(t, found)

	// A damaged page is read from another copy; with all of them damaged, that is said.
	rec := w.record(l.id)
	name, at := ManifestName(rec.Attempt, l.id), h.c.manifest.pages.refs[1].offset+100
	for i, target := range rec.Manifest.Targets {
		w.damage(target, name, at)
		r.t.pages = newPageCache(1)
		e, err = h.Entry(t.Context(), 5_500)
		if i+1 < len(rec.Manifest.Targets) {
			require.NoError(t, err)
			require.Equal(t, l.bodies[5_500], e.AppendBody(nil, l.id))
			require.Equal(t, FindingManifest, found[len(found)-1].Kind)
			continue
		}
		require.True(t, corrupt.Is(err), "%v", err)
	}
	_, err = h.Entry(t.Context(), 12_001)
	require.NoError(t, err, "other pages are read")
	n = 0
	for _, err := range h.Entries(t.Context(), 0, h.LastEntry()) {
		if err != nil {
			require.True(t, corrupt.Is(err), "%v", err)
			break
		}
		n++
	}
	require.Positive(t, n)
	require.Less(t, n, 13_000)
}

func TestEveryFlippedBitBesideThePagesIsNoticed(t *testing.T) {
	b, _ := hugeManifest(t, pageBlocks*2+100)
	get := func(b []byte) func(int64, []byte) error {
		return func(offset int64, dst []byte) error {
			if offset+int64(len(dst)) > int64(len(b)) {
				return errors.New("behind the end")
			}
			copy(dst, b[offset:])
			return nil
		}
	}
	whole, err := DecodeManifest("m", b)
	require.NoError(t, err)
	parts, err := readManifest("m", int64(len(b)), get(b))
	require.NoError(t, err)
	for n := range parts.pages.refs {
		x := parts.pages.refs[n]
		p, err := parts.decodePageAlone(n, b[x.offset:x.offset+int64(x.length)])
		require.NoError(t, err)
		require.Equal(t, whole.blocks[p.first:p.behind()], p.refs)
	}
	first, last := parts.pages.refs[0].offset, parts.pages.refs[2].offset+int64(parts.pages.refs[2].length)
	for i := range b {
		if int64(i) >= first && int64(i) < last || i >= len(b)-manifestTrailerSize && i < len(b)-12 {
			continue // pages have their own checksums; that over the whole is for whole copies
		}
		bad := append([]byte{}, b...)
		bad[i] ^= 4
		got, err := readManifest("m", int64(len(b)), get(bad))
		if err == nil { // of flags of known sections and the checksum of the index as a whole nothing depends
			require.Equal(t, parts, got, "byte %d", i)
		}
	}
}

// hugeManifest describes blocks of three entries, of which no shard has to exist.
func hugeManifest(t testing.TB, blocks int) ([]byte, *Manifest) {
	t.Helper()
	m := goldenManifest()
	m.Geometry, m.Key, m.Encryption, m.blocks, m.stripes = Geometry{1, 0}, nil, EncryptNone, make([]blockRef, blocks), nil
	const perCell, stored = 500_000, 40
	for i := range m.blocks {
		m.blocks[i] = blockRef{first: ledger.EntryID(3 * i), cell: uint32(i / perCell), number: uint32(i), offset: uint32(i % perCell * stored), stored: stored, raw: 8, crc: uint32(i * 7)}
	}
	for left := blocks; left > 0; left -= perCell {
		m.stripes = append(m.stripes, stripe{lengths: []uint32{uint32(min(left, perCell) * stored)}, crcs: []uint32{1}})
	}
	m.LastEntry = ledger.EntryID(3*blocks - 1)
	m.Entries = int64(m.LastEntry) + 1
	m.Shards = m.Shards[:1]
	for i, s := range shardSums(m.Geometry, m.stripes) {
		m.Shards[i].Length, m.Shards[i].CRC32C = s.length, s.crc
	}
	b, err := m.Encode()
	require.NoError(t, err)
	return b, m
}

func liveHeap() uint64 {
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return s.HeapAlloc
}

// TestHugeManifestTakesLittleMemory: a ledger of half a terabyte with blocks of the default size has an index of two million.
func TestHugeManifestTakesLittleMemory(t *testing.T) {
	const blocks = 2_000_000
	w := newWorld(t, "a", "b")
	r := w.reader(func(o *ReaderOptions) { o.ManifestCacheBytes = 2 << 20 })
	rec := &Record{State: StateReleased, Geometry: Geometry{1, 0}, LastEntry: 3*blocks - 1}
	id := ledger.ID(0)
	func() {
		b, m := hugeManifest(t, blocks)
		require.Greater(t, len(b), 3*manifestWholeMax)
		id, rec.Attempt, rec.Placement = m.Ledger, m.Attempt, []Placement{{Target: "t1"}}
		rec.Manifest = ManifestRef{Length: int64(len(b)), CRC32C: objstore.CRC32C(b), Targets: []string{"t1"}}
		_, err := w.stores["t1"].Put(t.Context(), ManifestName(rec.Attempt, id), objstore.NewBody(b), objstore.PutOptions{})
		require.NoError(t, err)
	}()
	before := liveHeap()
	var s, after runtime.MemStats
	runtime.ReadMemStats(&s)
	c, err := r.t.load(t.Context(), id, rec, metadata.Version(1))
	require.NoError(t, err)
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-s.TotalAlloc, uint64(2<<20), "opening takes what stands beside the pages")
	require.Equal(t, blocks, c.manifest.Blocks())
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range 300 {
		e := ledger.EntryID(rng.Int64N(3 * blocks))
		p, at, err := r.t.find(t.Context(), c, e)
		require.NoError(t, err)
		require.EqualValues(t, e/3, at)
		require.EqualValues(t, e/3*3, p.ref(at).first)
		require.EqualValues(t, at, p.ref(at).number)
		require.EqualValues(t, 3, p.entries(at))
		if i%100 == 99 {
			require.Less(t, int64(liveHeap())-int64(before), int64(4<<20), "pages are kept within their bound")
		}
	}
	good := &goodManifest{target: "t1", store: w.targets.byID["t1"], key: ManifestName(rec.Attempt, id), ref: rec.Manifest}
	require.NoError(t, good.copyTo(t.Context(), mem.New(), nil))
	require.NoError(t, r.t.checkManifestCopy(t.Context(), "t1", good.key, rec))
	require.NoError(t, good.copyTo(t.Context(), w.faults["t2"], nil))
	w.faults["t2"].Set(faulty.On(objstore.OpPart, faulty.Always(faulty.Fail(objstore.KindDenied))))
	require.Error(t, good.copyTo(t.Context(), w.faults["t2"], nil))
	require.Empty(t, w.stores["t2"].Uploads(), "what failed leaves nothing")
	runtime.KeepAlive(c)
}

func FuzzManifestParts(f *testing.F) {
	f.Add([]byte{})
	for _, blocks := range []int{1, pageBlocks + 3} {
		b, _ := hugeManifest(f, blocks)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		asked := 0
		m, err := readManifest("m", int64(len(data)), func(offset int64, b []byte) error {
			if asked += len(b); offset < 0 || offset+int64(len(b)) > int64(len(data)) {
				return errors.New("behind the end")
			}
			copy(b, data[offset:])
			return nil
		})
		require.LessOrEqual(t, asked, manifestFront+manifestPartsMax+len(data), "no more is asked for than there can be")
		if err != nil || m.pages == nil {
			return
		}
		whole, werr := DecodeManifest("m", data)
		for n := range m.pages.refs {
			x := &m.pages.refs[n]
			if x.offset+int64(x.length) > int64(len(data)) {
				t.Fatalf("page %d lies at %d, %d bytes", n, x.offset, x.length)
			}
			p, err := m.decodePageAlone(n, data[x.offset:x.offset+int64(x.length)])
			if werr == nil {
				require.NoError(t, err)
				require.Equal(t, whole.blocks[p.first:p.behind()], p.refs)
			}
		}
	})
}
