package offload

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/binderylog/bindery/internal/digest"
	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
)

func TestMain(m *testing.M) {
	if order := os.Getenv(memoryEnv); order != "" {
		peak, err := runMemoryOrder(order)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(peak)
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

const testPassword = "correct horse battery staple"

// testLedger is a closed ledger in memory: its record and the bodies that bookies hold.
type testLedger struct {
	id     ledger.ID
	meta   *ledger.Metadata
	bodies [][]byte
}

// ledgerSpec says what a test's ledger looks like.
type ledgerSpec struct {
	seed    uint64
	sizes   []int // of the payloads
	digest  ledger.DigestType
	skew    bool // lengths that are not the sum of the payloads, LACs out of line
	text    bool // payloads that compress
	version int
}

func makeLedger(t testing.TB, spec ledgerSpec) *testLedger {
	t.Helper()
	if spec.digest == 0 {
		spec.digest = ledger.DigestCRC32C
	}
	rng := rand.New(rand.NewPCG(spec.seed, 1))
	l := &testLedger{id: ledger.ID(spec.seed + 42)}
	d, err := digest.New(spec.digest, []byte(testPassword))
	require.NoError(t, err)
	var total, length int64
	for i, size := range spec.sizes {
		payload := make([]byte, size)
		fillRandom(rng, payload, spec.text)
		total += int64(size)
		length = total
		lac := int64(i) - 1
		if spec.skew {
			length = max(length+int64(rng.IntN(3))-1, 0)
			lac += int64(rng.IntN(7)) - 3
		}
		l.bodies = append(l.bodies, d.Seal(nil, int64(l.id), int64(i), max(lac, -1), length, payload))
	}
	l.meta = closedRecord(spec.digest, ledger.EntryID(len(spec.sizes)-1), length)
	if spec.version != 0 {
		l.meta.FormatVersion = spec.version
	}
	return l
}

// closedRecord is what the bookies' metadata says of a closed ledger.
func closedRecord(d ledger.DigestType, last ledger.EntryID, length int64) *ledger.Metadata {
	return &ledger.Metadata{
		FormatVersion: metadata.LedgerFormatV3, Ensemble: 3, WriteQuorum: 3, AckQuorum: 2, State: ledger.StateClosed,
		LastEntry: last, Length: length, Digest: d, Password: []byte(testPassword), HasPassword: true,
		Fragments: []ledger.Fragment{{First: 0, Bookies: []ledger.BookieID{"a:1", "b:1", "c:1"}}},
	}
}

func fillRandom(rng *rand.Rand, b []byte, text bool) {
	if text {
		const words = "the quick brown fox jumps over the lazy dog and 0123456789 "
		for i := 0; i < len(b); i += copy(b[i:], words[rng.IntN(len(words)):]) {
		}
		return
	}
	for i := 0; i+8 <= len(b); i += 8 {
		v := rng.Uint64()
		for j := range 8 {
			b[i+j] = byte(v >> (8 * j))
		}
	}
	for i := len(b) &^ 7; i < len(b); i++ {
		b[i] = byte(rng.Uint32())
	}
}

func sizes(n int, size func(i int) int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = size(i)
	}
	return out
}

func even(n, size int) []int { return sizes(n, func(int) int { return size }) }

// entry returns one entry as an EntrySource yields it.
func (l *testLedger) entry(t testing.TB, i int) Entry {
	t.Helper()
	e, err := ParseEntry(l.bodies[i], l.meta.Digest)
	require.NoError(t, err)
	return e
}

// encoded is a ledger that went through an encoder, with its shards in memory.
type encoded struct {
	plan     plan
	manifest *Manifest
	shards   [][]byte
	stripes  []*codedStripe // without their cells
}

func testPlan(l *testLedger, g Geometry) plan {
	return plan{
		ledger: l.id, attempt: AttemptID{1, 2, 3}, geometry: g, digest: l.meta.Digest, cellBytes: CellBytesMin,
		blockBytes: blockBytesFor(BlockBytesDefault, g, l.meta.Length), inlineBytes: InlineBytesDefault,
	}
}

// digestOf is the digest over the content of all blocks.
func digestOf(contents []contentSum) contentSum {
	var c contentHash
	c.add(contents)
	return c.sum()
}

// testPool makes a pool that the end of the test closes.
func testPool(t testing.TB, count, size int) *bufferPool {
	pool := newBufferPool(count, size)
	t.Cleanup(func() { require.NoError(t, pool.close()) })
	return pool
}

func encode(t testing.TB, l *testLedger, p plan) *encoded {
	t.Helper()
	out := &encoded{plan: p, shards: make([][]byte, p.geometry.Shards())}
	pool := testPool(t, p.geometry.Shards()+2, p.cellBytes)
	ctx := context.Background()
	e, err := newEncoder(p, progress{}, pool, func(_ context.Context, s *codedStripe) error {
		for i, c := range s.cells {
			out.shards[i] = append(out.shards[i], c...)
			pool.put(c)
		}
		s.cells = nil
		out.stripes = append(out.stripes, s)
		return nil
	})
	require.NoError(t, err)
	for i := range l.bodies {
		entry := l.entry(t, i)
		require.NoError(t, e.add(ctx, &entry))
	}
	inline, err := e.finish(ctx)
	require.NoError(t, err)
	require.Empty(t, pool.slots, "every buffer is back")
	targets := make([]string, p.geometry.Shards())
	for i := range targets {
		targets[i] = string(rune('a' + i))
	}
	out.manifest, err = buildManifest(p, &e.done, inline, l.meta, targets, nil)
	require.NoError(t, err)
	return out
}

// block returns the stored bytes of a block.
func (e *encoded) block(i int) []byte {
	b := e.manifest.blocks[i]
	if e.manifest.Inline != nil {
		return e.manifest.Inline[b.offset : b.offset+b.stored]
	}
	k := e.plan.geometry.Data
	offset := int64(b.offset)
	for s := range int(b.cell) / k {
		offset += int64(e.manifest.stripes[s].lengths[int(b.cell)%k])
	}
	return e.shards[int(b.cell)%k][offset : offset+int64(b.stored)]
}

func (e *encoded) codec(t testing.TB) *blockCodec {
	t.Helper()
	size, _ := digestSize(e.plan.digest)
	c := &blockCodec{digestSize: size}
	if e.plan.dataKey != nil {
		var err error
		c.sealer, err = newSealer(e.plan.dataKey, e.plan.ledger, e.plan.attempt, 0)
		require.NoError(t, err)
	}
	return c
}

// bodies decodes every block and returns the entries' bodies.
func (e *encoded) bodies(t testing.TB) [][]byte {
	t.Helper()
	var out [][]byte
	var contents []contentSum
	c := e.codec(t)
	for i, ref := range e.manifest.blocks {
		b, err := c.open(e.block(i), uint64(ref.number))
		require.NoError(t, err, "block %d", i)
		require.EqualValues(t, e.manifest.entriesOf(i), len(b.Entries))
		require.Equal(t, ref.first, b.First)
		for j := range b.Entries {
			out = append(out, b.Entries[j].AppendBody(nil, e.plan.ledger))
		}
		if len(b.Entries) > 0 {
			contents = append(contents, b.content())
		}
	}
	require.Equal(t, e.manifest.Content, [16]byte(digestOf(contents)))
	return out
}
