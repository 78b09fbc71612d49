package bookie

import "sync"

// Buffers of connections come in three sizes from pools shared by all of them; larger ones, for single large frames, are
// made to measure and left to the collector.
const (
	bufSmall  = 4 << 10   // a connection with little to say
	bufMedium = 32 << 10  //
	bufLarge  = 256 << 10 // a busy connection
)

var bufPools = [...]struct {
	size int
	pool sync.Pool
}{
	{size: bufSmall}, {size: bufMedium}, {size: bufLarge},
}

// getBuf returns a buffer of length 0 with room for n bytes. The pointer is what putBuf takes back: a slice itself would
// be allocated anew at each turn through the pool.
func getBuf(n int) *[]byte {
	for i := range bufPools {
		p := &bufPools[i]
		if n > p.size {
			continue
		}
		if b, ok := p.pool.Get().(*[]byte); ok {
			*b = (*b)[:0]
			return b
		}
		b := make([]byte, 0, p.size)
		return &b
	}
	b := make([]byte, 0, n)
	return &b
}

// putBuf takes a buffer back. One that has grown past its size goes to the pool of the size that it has room for.
func putBuf(b *[]byte) {
	if b == nil {
		return
	}
	c := cap(*b)
	for i := len(bufPools) - 1; i >= 0; i-- {
		p := &bufPools[i]
		if c >= p.size {
			if c < 2*p.size || i < len(bufPools)-1 {
				p.pool.Put(b)
			}
			return
		}
	}
}

// appendBuf appends p to the buffer, moving to a larger one from the pools where append would allocate.
func appendBuf(b *[]byte, n int) *[]byte {
	if b == nil {
		return getBuf(n)
	}
	if cap(*b)-len(*b) >= n {
		return b
	}
	bigger := getBuf(max(2*cap(*b), len(*b)+n))
	*bigger = append(*bigger, *b...)
	putBuf(b)
	return bigger
}
