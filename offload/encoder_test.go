package offload

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/klauspost/reedsolomon"
	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/offload/objstore"
)

func TestStatement01RoundTripIsByteEqual(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	specs := []ledgerSpec{
		{sizes: []int{0}},
		{sizes: even(1, 100)},
		{sizes: even(70_000, 0)},
		{sizes: even(1000, 1024)},
		{sizes: sizes(300, func(int) int { return rng.IntN(100_000) })},
		{sizes: []int{0, 5 << 20, 1, 0, 5<<20 - 1, 300 << 10, 5 << 20, 17, 5 << 20}},
		{sizes: sizes(9, func(i int) int { return (5 << 20) * (i % 2) })},
	}
	if !testing.Short() {
		specs = append(specs, ledgerSpec{sizes: sizes(1_000_000, func(int) int { return rng.IntN(40) })})
	}
	for i, spec := range specs {
		for _, typ := range []ledger.DigestType{ledger.DigestCRC32, ledger.DigestHMAC, ledger.DigestCRC32C, ledger.DigestDummy} {
			for _, mode := range []Compression{CompressNone, CompressAuto, CompressZstd} {
				if (len(spec.sizes) > 100_000 || i >= 5) && (typ != ledger.DigestCRC32C || mode == CompressZstd) {
					continue
				}
				spec.seed, spec.digest, spec.skew, spec.text = uint64(i), typ, i%2 == 0, mode != CompressNone
				t.Run(fmt.Sprintf("%d/%s/%d", i, typ, mode), func(t *testing.T) {
					l := makeLedger(t, spec)
					p := testPlan(l, Geometry{4, 2})
					p.compression = mode
					got := encode(t, l, p).bodies(t)
					require.Len(t, got, len(l.bodies))
					for j := range got {
						if !bytes.Equal(l.bodies[j], got[j]) {
							t.Fatalf("entry %d differs", j)
						}
					}
				})
			}
		}
	}
}

func TestStatement03ParityIsTheSameWithEveryInstructionSet(t *testing.T) {
	require.NoError(t, SelfTest())
	off := map[string]reedsolomon.Option{
		"ssse3": reedsolomon.WithSSSE3(false), "avx2": reedsolomon.WithAVX2(false), "sse2": reedsolomon.WithSSE2(false), "neon": reedsolomon.WithNEON(false),
		"avx512": reedsolomon.WithAVX512(false), "gfni": reedsolomon.WithGFNI(false), "avxgfni": reedsolomon.WithAVXGFNI(false), "sve": reedsolomon.WithSVE(false),
	}
	var all []reedsolomon.Option
	for name, o := range off {
		require.NoError(t, selfTest(o), "without %s", name)
		all = append(all, o)
	}
	require.NoError(t, selfTest(all...), "without any")
	require.Error(t, selfTest(reedsolomon.WithCauchyMatrix()), "another matrix is noticed")
}

// slowParity multiplies byte by byte in GF(2^8) with the rows of the code's matrix: the identity on top of what makes any k rows
// of a Vandermonde matrix invertible. It shares nothing with the library.
func slowParity(g Geometry, data [][]byte) [][]byte {
	mul := func(a, b byte) (p byte) {
		for ; b != 0; b >>= 1 {
			if b&1 != 0 {
				p ^= a
			}
			carry := a & 0x80
			if a <<= 1; carry != 0 {
				a ^= 0x1d
			}
		}
		return p
	}
	pow := func(a byte, n int) byte {
		r := byte(1)
		for range n {
			r = mul(r, a)
		}
		return r
	}
	inv := func(a byte) byte { return pow(a, 254) }
	k, n := g.Data, g.Shards()
	v := make([][]byte, n)
	for r := range v {
		v[r] = make([]byte, k)
		for c := range v[r] {
			v[r][c] = pow(byte(r), c)
		}
	}
	// Column operations turn the upper square into the identity.
	for c := range k {
		d := inv(v[c][c])
		for r := range n {
			v[r][c] = mul(v[r][c], d)
		}
		for other := range k {
			if f := v[c][other]; other != c && f != 0 {
				for r := range n {
					v[r][other] ^= mul(f, v[r][c])
				}
			}
		}
	}
	parity := make([][]byte, g.Parity)
	for p := range parity {
		parity[p] = make([]byte, len(data[0]))
		for j := range parity[p] {
			for i := range k {
				parity[p][j] ^= mul(v[k+p][i], data[i][j])
			}
		}
	}
	return parity
}

func TestParityAgreesWithArithmetic(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	for _, g := range []Geometry{{1, 1}, {1, 3}, {2, 1}, {2, 2}, {3, 2}, {4, 2}, {6, 3}, {8, 3}, {10, 4}, {16, 8}} {
		shards := make([][]byte, g.Shards())
		for i := range shards {
			shards[i] = make([]byte, 100)
			fillRandom(rng, shards[i], false)
		}
		c, err := newCoder(g)
		require.NoError(t, err)
		require.NoError(t, c.encode(shards))
		require.Equal(t, slowParity(g, shards[:g.Data]), shards[g.Data:], "%s", g)
	}
}

func TestStatement05SubRangesDecodeAsWholeStripesDo(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	l := makeLedger(t, ledgerSpec{seed: 5, sizes: sizes(400, func(i int) int { return rng.IntN(30_000) + 200_000*(i%50/49) })})
	e := encode(t, l, testPlan(l, Geometry{4, 2}))
	require.Len(t, e.manifest.stripes, 1)
	s := &e.manifest.stripes[0]
	coder, err := newCoder(e.plan.geometry)
	require.NoError(t, err)
	for range 200 {
		want := rng.IntN(6)
		length := int(s.length(want))
		from := rng.IntN(length)
		to := from + 1 + rng.IntN(length-from)
		lost := map[int]bool{want: true, (want + 1 + rng.IntN(5)) % 6: true}
		cells := make([][]byte, 6)
		for i := range cells {
			if lost[i] {
				continue
			}
			cells[i] = make([]byte, to-from)
			if from < len(e.shards[i]) {
				copy(cells[i], e.shards[i][from:min(to, len(e.shards[i]))])
			}
		}
		require.NoError(t, coder.rebuild(cells, want))
		require.True(t, bytes.Equal(e.shards[want][from:to], cells[want]), "cell %d, bytes %d to %d", want, from, to)
	}
}

func TestStatement06BlocksStayInTheirCellsAndPartsAreLargeEnough(t *testing.T) {
	// Cells of 6 MiB: a small entry, then large ones, leaves cells of 2.5 MiB that have to be filled up.
	l := makeLedger(t, ledgerSpec{seed: 6, sizes: sizes(23, func(i int) int {
		if i%2 == 0 {
			return 5 << 20
		}
		return 2500 << 10
	})})
	e := encode(t, l, testPlan(l, Geometry{2, 1}))
	m := e.manifest
	require.Greater(t, len(m.stripes), 2)
	fills := 0
	for i := range m.blocks {
		if m.entriesOf(i) == 0 {
			fills++
			b, err := e.codec(t).open(e.block(i), 0)
			require.NoError(t, err)
			require.Empty(t, b.Entries)
		}
	}
	require.Positive(t, fills)
	for i := range len(m.stripes) - 1 {
		for _, n := range m.stripes[i].lengths {
			require.GreaterOrEqual(t, int(n), objstore.PartMin)
			require.LessOrEqual(t, int(n), e.plan.cellBytes)
		}
	}
	require.Len(t, e.bodies(t), len(l.bodies))
	for e, i := 0, 0; e < len(l.bodies); e++ {
		i = m.blockOf(ledger.EntryID(e))
		require.Positive(t, m.entriesOf(i), "entry %d is looked for in a block that has it", e)
	}
}

func TestStatement07TailIsCutEvenly(t *testing.T) {
	g := Geometry{4, 2}
	const entry = 64<<10 - 40 // four a block, less than a byte a block apart
	perCell := CellBytesMin / (64 << 10)
	for _, mode := range []Compression{CompressNone, CompressZstd} {
		for _, extra := range []int{-5, -1, 0, 1, 5} {
			n := g.Data*perCell + extra
			l := makeLedger(t, ledgerSpec{seed: uint64(100 + extra), sizes: even(n, entry), text: mode == CompressZstd})
			p := testPlan(l, g)
			p.compression = mode
			e := encode(t, l, p)
			last := e.manifest.stripes[len(e.manifest.stripes)-1]
			block := uint32(0)
			for _, b := range e.manifest.blocks {
				block = max(block, b.stored)
			}
			lo, hi, sum := last.lengths[0], last.lengths[0], uint32(0)
			for _, x := range last.lengths {
				lo, hi, sum = min(lo, x), max(hi, x), sum+x
			}
			mean := sum / uint32(g.Data)
			require.LessOrEqual(t, hi, mean+block, "%d entries beyond the stripe, compression %d: %v", extra, mode, last.lengths)
			require.GreaterOrEqual(t, lo+block, mean, "%d entries beyond the stripe, compression %d: %v", extra, mode, last.lengths)
			if mode == CompressNone { // blocks of one size
				require.LessOrEqual(t, hi-lo, block, "%d entries beyond the stripe: %v", extra, last.lengths)
			}
			require.Len(t, e.bodies(t), n)
		}
	}
}

func TestStatement07SmallLedgersAreInline(t *testing.T) {
	g := Geometry{4, 2}
	l := makeLedger(t, ledgerSpec{sizes: []int{10}})
	p := testPlan(l, g)
	e := encode(t, l, p)
	require.Len(t, e.manifest.Inline, blockHeaderSize+1+1+1+4+10)
	for _, extra := range []int{0, 1} {
		n := 1000 // overheads: header 32, base 1, lengths 2 each, lags 1 each, digest 4 each
		l := makeLedger(t, ledgerSpec{sizes: []int{n}})
		p.inlineBytes = blockHeaderSize + 1 + 2 + 1 + 4 + n - extra
		p.ledger = l.id
		e := encode(t, l, p)
		require.Equal(t, extra == 0, e.manifest.Inline != nil)
		require.Equal(t, l.bodies, e.bodies(t))
		if extra == 1 {
			require.Len(t, e.manifest.stripes, 1)
			require.NotZero(t, e.manifest.stripes[0].lengths[0])
			require.Zero(t, e.manifest.stripes[0].lengths[3], "one block fills one cell")
		}
	}
}

func TestOverheadIsWhatTheGeometrySays(t *testing.T) {
	for _, c := range []struct {
		g     Geometry
		bytes int
		limit float64
	}{{Geometry{4, 2}, 300 << 10, 1.55}, {Geometry{4, 2}, 100 << 10, 1.70}, {Geometry{10, 4}, 1 << 20, 1.55}, {Geometry{4, 2}, 64 << 20, 1.515}} {
		l := makeLedger(t, ledgerSpec{sizes: even(c.bytes/1024, 1024)})
		e := encode(t, l, testPlan(l, c.g))
		stored := 0
		for _, s := range e.shards {
			stored += len(s)
		}
		encodedManifest, err := e.manifest.Encode()
		require.NoError(t, err)
		raw := c.bytes / 1024 * (1024 + 4)
		require.LessOrEqual(t, float64(stored)/float64(raw), c.limit, "%s, %d bytes", c.g, c.bytes)
		if c.bytes >= 64<<20 { // P8: the index is small
			require.LessOrEqual(t, float64(len(encodedManifest))/float64(raw), 0.0005)
		}
	}
}

func TestAutoCompressionLeavesRandomBytesAlone(t *testing.T) {
	l := makeLedger(t, ledgerSpec{sizes: even(8000, 1024)})
	p := testPlan(l, Geometry{1, 0})
	p.compression = CompressAuto
	e := encode(t, l, p)
	for i := range e.manifest.blocks {
		require.Zero(t, e.block(i)[5]&flagZstd)
	}
	l = makeLedger(t, ledgerSpec{sizes: even(8000, 1024), text: true})
	packed := 0
	e = encode(t, l, p)
	for i := range e.manifest.blocks {
		packed += int(e.block(i)[5] & flagZstd)
	}
	require.Equal(t, len(e.manifest.blocks), packed)
}

func TestEntryTooLargeForItsCellIsRefusedByName(t *testing.T) {
	l := makeLedger(t, ledgerSpec{sizes: []int{CellBytesMin}})
	p := testPlan(l, Geometry{1, 0})
	enc, err := newEncoder(p, progress{}, testPool(t, 2, p.cellBytes), nil)
	require.NoError(t, err)
	e := l.entry(t, 0)
	err = enc.add(t.Context(), &e)
	require.ErrorContains(t, err, "raise the cell size")
}

func TestStatement11And42NothingSecretIsInAnObject(t *testing.T) {
	key := bytes.Repeat([]byte{7}, dataKeySize)
	l := makeLedger(t, ledgerSpec{sizes: even(500, 2000), text: true, digest: ledger.DigestHMAC})
	p := testPlan(l, Geometry{2, 1})
	p.dataKey = key
	e := encode(t, l, p)
	var all []byte
	for _, s := range e.shards {
		all = append(all, s...)
	}
	e.manifest.Key = &WrappedKey{KeyID: "k1", Algorithm: "none", Key: []byte("wrapped")}
	e.manifest.Encryption = EncryptAESGCM
	m, err := e.manifest.Encode()
	require.NoError(t, err)
	all = append(all, m...)
	require.NotContains(t, string(all), testPassword)
	for i := 0; i < len(l.bodies); i += 50 {
		body := l.bodies[i]
		for off := 52; off+16 <= len(body); off += 97 {
			require.False(t, strings.Contains(string(all), string(body[off:off+16])), "entry %d", i)
		}
	}
	require.Equal(t, l.bodies, e.bodies(t))

	wrong := e.codec(t)
	wrong.sealer, err = newSealer(bytes.Repeat([]byte{8}, dataKeySize), l.id, p.attempt, 0)
	require.NoError(t, err)
	_, err = wrong.open(e.block(0), 0)
	require.ErrorContains(t, err, "the key is not the one")
	_, err = e.codec(t).open(e.block(1), 2)
	require.Error(t, err, "a block in another's place")
	wrong.sealer = nil
	_, err = wrong.open(e.block(0), 0)
	require.ErrorIs(t, err, ErrNoKey)
}

func TestSameInputGivesTheSameBytes(t *testing.T) {
	l := makeLedger(t, ledgerSpec{sizes: even(30_000, 700)})
	p := testPlan(l, Geometry{2, 1})
	a, b := encode(t, l, p), encode(t, l, p)
	require.Equal(t, a.shards, b.shards)
	ma, _ := a.manifest.Encode()
	mb, _ := b.manifest.Encode()
	require.Equal(t, ma, mb)
}

func TestEncoderGoesOnFromProgress(t *testing.T) {
	l := makeLedger(t, ledgerSpec{sizes: even(14_000, 4096)})
	p := testPlan(l, Geometry{2, 1})
	whole := encode(t, l, p)
	require.Greater(t, len(whole.stripes), 3)
	var from progress
	for _, s := range whole.stripes[:2] {
		from.stripes = append(from.stripes, s.info)
		from.blocks = append(from.blocks, s.blocks...)
		from.content.add(s.contents)
		from.next, from.base = s.next, s.base
	}
	pool := testPool(t, 6, p.cellBytes)
	enc, err := newEncoder(p, from, pool, func(_ context.Context, s *codedStripe) error {
		for _, c := range s.cells {
			pool.put(c)
		}
		return nil
	})
	require.NoError(t, err)
	for i := int(from.next); i < len(l.bodies); i++ {
		e := l.entry(t, i)
		require.NoError(t, enc.add(t.Context(), &e))
	}
	_, err = enc.finish(t.Context())
	require.NoError(t, err)
	m, err := buildManifest(p, &enc.done, nil, l.meta, []string{"a", "b", "c"}, nil)
	require.NoError(t, err)
	require.Equal(t, whole.manifest, m)
}
