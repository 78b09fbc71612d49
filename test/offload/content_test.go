//go:build offloadbig

package offload

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
)

// content yields bytes that do not compress and sums them up.
type content struct {
	rng  *rand.PCG
	left int64
	sum  io.Writer
}

func newContent(seed uint64, size int64, sum io.Writer) *content {
	return &content{rng: rand.NewPCG(seed, 7), left: size, sum: sum}
}

// Read implements io.Reader.
func (c *content) Read(p []byte) (int, error) {
	if c.left == 0 {
		return 0, io.EOF
	}
	n := int(min(int64(len(p)), c.left))
	p = p[:n]
	i := 0
	for ; i+8 <= n; i += 8 {
		binary.LittleEndian.PutUint64(p[i:], c.rng.Uint64())
	}
	for ; i < n; i++ {
		p[i] = byte(c.rng.Uint64())
	}
	c.left -= int64(n)
	_, err := c.sum.Write(p)
	return n, err
}

// digest sums what is written to it.
type digest struct {
	h interface {
		io.Writer
		Sum([]byte) []byte
	}
	n int64
}

func newDigest() *digest { return &digest{h: sha256.New()} }

// Write implements io.Writer.
func (d *digest) Write(p []byte) (int, error) {
	d.n += int64(len(p))
	return d.h.Write(p)
}

func (d *digest) String() string { return fmt.Sprintf("%d bytes, sha256 %x", d.n, d.h.Sum(nil)) }

// parseSize reads a size such as 5GiB.
func parseSize(s string) (int64, error) {
	for i, unit := range []string{"KiB", "MiB", "GiB"} {
		if n, ok := strings.CutSuffix(s, unit); ok {
			v, err := strconv.ParseInt(n, 10, 64)
			return v << (10 * (i + 1)), err
		}
	}
	return strconv.ParseInt(s, 10, 64)
}

func human(n int64) string {
	if n >= 1<<30 {
		return fmt.Sprintf("%.2f GiB", float64(n)/(1<<30))
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}
