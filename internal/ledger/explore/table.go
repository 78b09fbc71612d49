package explore

import (
	"math/bits"
	"sync"
	"sync/atomic"
)

// chunked is an append-only list. Writers hold a lock of their own; an item may be read without one by whoever was handed
// its number.
type chunked[T any] struct {
	chunks [1 << 12]atomic.Pointer[[chunkSize]T]
	n      int
}

const (
	chunkBits = 10
	chunkSize = 1 << chunkBits
)

func (c *chunked[T]) at(i uint32) *T { return &c.chunks[i>>chunkBits].Load()[i&(chunkSize-1)] }

func (c *chunked[T]) add(v T) (uint32, bool) {
	i := c.n
	if i>>chunkBits == len(c.chunks) {
		return 0, false
	}
	p := c.chunks[i>>chunkBits].Load()
	if p == nil {
		p = new([chunkSize]T)
		c.chunks[i>>chunkBits].Store(p)
	}
	p[i&(chunkSize-1)] = v
	c.n++
	return uint32(i), true
}

// interned gives equal values equal numbers.
type interned[T any] struct {
	mu   sync.RWMutex
	ids  map[string]uint32
	list chunked[T]
}

func (t *interned[T]) id(key []byte, build func() T) uint32 {
	t.mu.RLock()
	id, ok := t.ids[string(key)]
	t.mu.RUnlock()
	if ok {
		return id
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if id, ok := t.ids[string(key)]; ok {
		return id
	}
	if t.ids == nil {
		t.ids = map[string]uint32{}
	}
	id, ok = t.list.add(build())
	if !ok {
		panic(errTooMany)
	}
	t.ids[string(key)] = id
	return id
}

func (t *interned[T]) at(id uint32) *T { return t.list.at(id) }

// memo remembers results of pure functions.
type memo[K comparable, V any] struct {
	mu sync.RWMutex
	m  map[K]V
}

func (t *memo[K, V]) get(k K, build func() V) V {
	t.mu.RLock()
	v, ok := t.m[k]
	t.mu.RUnlock()
	if ok {
		return v
	}
	v = build()
	t.mu.Lock()
	if t.m == nil {
		t.m = map[K]V{}
	}
	t.m[k] = v
	t.mu.Unlock()
	return v
}

// codeTable remembers one number for each number, without a lock.
type codeTable struct {
	chunks [1 << 12]atomic.Pointer[[chunkSize]atomic.Uint32]
}

func (t *codeTable) get(i uint32, build func() uint32) uint32 {
	c := &t.chunks[i>>chunkBits]
	p := c.Load()
	if p == nil {
		c.CompareAndSwap(nil, new([chunkSize]atomic.Uint32))
		p = c.Load()
	}
	v := p[i&(chunkSize-1)].Load()
	if v == 0 {
		v = build() + 1
		p[i&(chunkSize-1)].Store(v)
	}
	return v - 1
}

// fingerprint is 128 bits of a state's canonical vector.
type fingerprint struct{ a, b uint64 }

// hash is the MurmurHash3 mixing of 128 bits, over words.
func hash(words []uint32) fingerprint {
	const c1, c2 = 0x87c37b91114253d5, 0x4cf5ad432745937f
	var h1, h2 uint64 = 0x9e3779b97f4a7c15, 0xc2b2ae3d27d4eb4f
	n := len(words)
	for i := 0; i < n; i += 4 {
		var k1, k2 uint64
		k1 = uint64(words[i])
		if i+1 < n {
			k1 |= uint64(words[i+1]) << 32
		}
		if i+2 < n {
			k2 = uint64(words[i+2])
		}
		if i+3 < n {
			k2 |= uint64(words[i+3]) << 32
		}
		h1 ^= bits.RotateLeft64(k1*c1, 31) * c2
		h1 = (bits.RotateLeft64(h1, 27)+h2)*5 + 0x52dce729
		h2 ^= bits.RotateLeft64(k2*c2, 33) * c1
		h2 = (bits.RotateLeft64(h2, 31)+h1)*5 + 0x38495ab5
	}
	h1 ^= uint64(n)
	h2 ^= uint64(n)
	h1 += h2
	h2 += h1
	h1, h2 = finish(h1), finish(h2)
	h1 += h2
	h2 += h1
	if h1 == 0 && h2 == 0 {
		h2 = 1
	}
	return fingerprint{h1, h2}
}

func finish(h uint64) uint64 {
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// visited is the set of fingerprints seen: open addressing, in shards that grow on their own.
type visited struct {
	shards [64]struct {
		mu   sync.Mutex
		tab  []fingerprint
		used int
		_    [64]byte
	}
}

// add reports whether f was not in the set.
func (v *visited) add(f fingerprint) bool {
	s := &v.shards[f.a>>58]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used*4 >= len(s.tab)*3 {
		old := s.tab
		s.tab = make([]fingerprint, max(256, 2*len(old)))
		for _, o := range old {
			if o != (fingerprint{}) {
				s.tab[place(s.tab, o)] = o
			}
		}
	}
	i := place(s.tab, f)
	if s.tab[i] == f {
		return false
	}
	s.tab[i] = f
	s.used++
	return true
}

func place(tab []fingerprint, f fingerprint) int {
	mask := len(tab) - 1
	i := int(f.b) & mask
	for tab[i] != (fingerprint{}) && tab[i] != f {
		i = (i + 1) & mask
	}
	return i
}

func (v *visited) bytes() int64 {
	n := int64(0)
	for i := range v.shards {
		n += int64(len(v.shards[i].tab)) * 16
	}
	return n
}
