package offload

import (
	"fmt"
	"sync"

	"github.com/klauspost/reedsolomon"

	"github.com/binderylog/bindery/offload/objstore"
)

// codeReedSolomon is the code id of manifests: systematic Reed-Solomon over GF(2^8) with the default matrix of
// klauspost/reedsolomon. Bytes that this code made must be readable for ever, hence the pinned module and SelfTest.
const codeReedSolomon = 1

// selfTests are the checksums of the parity shards for data[i][j] = byte(31i + 7j + 1), 64 bytes a shard.
var selfTests = []struct {
	g      Geometry
	parity []uint32
}{
	{Geometry{1, 1}, []uint32{0xaa6ab286}},
	{Geometry{2, 1}, []uint32{0x54f5f6a1}},
	{Geometry{2, 2}, []uint32{0x54f5f6a1, 0xb6dfe68b}},
	{Geometry{3, 2}, []uint32{0x44915a6f, 0x9ed77ce5}},
	{Geometry{4, 2}, []uint32{0x04219609, 0xf8e3145a}},
	{Geometry{6, 3}, []uint32{0xb1e5a6fd, 0x41b4a261, 0xb36a99e2}},
	{Geometry{8, 3}, []uint32{0xa7a3649c, 0xa1faa882, 0x19553d84}},
	{Geometry{10, 4}, []uint32{0x60254d86, 0xb87f914e, 0x5ef528f8, 0x97404066}},
}

// SelfTest computes known parity and compares. It runs before a worker or reader starts: a coder that answers
// differently on this machine must not write or rebuild a byte.
var SelfTest = sync.OnceValue(func() error { return selfTest() })

func selfTest(o ...reedsolomon.Option) error {
	if errDecompressor != nil {
		return fmt.Errorf("zstd: %w", errDecompressor)
	}
	for _, t := range selfTests {
		c, err := newCoder(t.g, o...)
		if err != nil {
			return err
		}
		shards := make([][]byte, t.g.Shards())
		for i := range shards {
			shards[i] = make([]byte, 64)
			for j := range shards[i] {
				if i < t.g.Data {
					shards[i][j] = byte(31*i + 7*j + 1)
				}
			}
		}
		if err := c.encode(shards); err != nil {
			return fmt.Errorf("self-test of the erasure code %s: %w", t.g, err)
		}
		for i, want := range t.parity {
			if got := objstore.CRC32C(shards[t.g.Data+i]); got != want {
				return fmt.Errorf("self-test of the erasure code %s: parity shard %d has CRC32C %08x, not %08x; nothing is written: "+
					"report this with the processor's model", t.g, i, got, want)
			}
		}
	}
	return nil
}

// coder computes parity and lost cells. It may be used by several goroutines.
type coder struct {
	g   Geometry
	enc reedsolomon.Encoder // nil without parity
}

func newCoder(g Geometry, o ...reedsolomon.Option) (*coder, error) {
	if err := g.Validate(); err != nil {
		return nil, err
	}
	c := &coder{g: g}
	if g.Parity == 0 {
		return c, nil
	}
	enc, err := reedsolomon.New(g.Data, g.Parity, append([]reedsolomon.Option{reedsolomon.WithMaxGoroutines(1)}, o...)...)
	if err != nil {
		return nil, fmt.Errorf("erasure code %s: %w", g, err)
	}
	c.enc = enc
	return c, nil
}

// encode fills the parity shards. All have one length.
func (c *coder) encode(shards [][]byte) error {
	if c.enc == nil || len(shards[0]) == 0 {
		return nil
	}
	return c.enc.Encode(shards)
}

// rebuild fills the wanted shards; those without bytes are missing, at least Data are there, all of one length.
func (c *coder) rebuild(shards [][]byte, want ...int) error {
	if c.enc == nil {
		return fmt.Errorf("erasure code %s has no parity to rebuild from", c.g)
	}
	required := make([]bool, c.g.Shards())
	for _, w := range want {
		required[w] = true
	}
	return c.enc.ReconstructSome(shards, required)
}
