package index

import (
	"bytes"
	"slices"
	"sort"
)

// leafMax bounds the leaves of a sorted map.
const leafMax = 256

// sorted is an ordered map of byte strings: a list of sorted leaves. The zero value is empty. Keys and values that are put
// are copied; values are never changed in place, so one that was returned stays as it is.
type sorted struct {
	leaves [][]pair // none is empty
}

type pair struct{ key, value []byte }

// locate returns leaf and place of key, or of the first key behind it; leaf == len(leaves) if there is none.
func (m *sorted) locate(key []byte) (leaf, at int, found bool) {
	leaf = sort.Search(len(m.leaves), func(i int) bool {
		l := m.leaves[i]
		return bytes.Compare(l[len(l)-1].key, key) >= 0
	})
	if leaf == len(m.leaves) {
		return leaf, 0, false
	}
	at, found = slices.BinarySearchFunc(m.leaves[leaf], key, func(p pair, k []byte) int { return bytes.Compare(p.key, k) })
	return leaf, at, found
}

// get returns nil for a key that is not there, and a non-nil slice otherwise.
func (m *sorted) get(key []byte) []byte {
	leaf, at, ok := m.locate(key)
	if !ok {
		return nil
	}
	return m.leaves[leaf][at].value
}

func (m *sorted) put(key, value []byte) {
	value = append(make([]byte, 0, len(value)), value...)
	leaf, at, ok := m.locate(key)
	if ok {
		m.leaves[leaf][at].value = value
		return
	}
	p := pair{bytes.Clone(key), value}
	if leaf == len(m.leaves) { // behind all
		if leaf == 0 {
			m.leaves = [][]pair{{p}}
			return
		}
		leaf--
		at = len(m.leaves[leaf])
	}
	l := slices.Insert(m.leaves[leaf], at, p)
	if len(l) <= leafMax {
		m.leaves[leaf] = l
		return
	}
	half := len(l) / 2
	right := slices.Clone(l[half:])
	m.leaves[leaf] = slices.Clip(l[:half])
	m.leaves = slices.Insert(m.leaves, leaf+1, right)
}

func (m *sorted) del(key []byte) {
	leaf, at, ok := m.locate(key)
	if !ok {
		return
	}
	if len(m.leaves[leaf]) == 1 {
		m.leaves = slices.Delete(m.leaves, leaf, leaf+1)
		return
	}
	m.leaves[leaf] = slices.Delete(m.leaves[leaf], at, at+1)
}

// memCursor walks a sorted map that does not change meanwhile.
type memCursor struct {
	m        *sorted
	leaf, at int
}

func (c *memCursor) here() (k, v []byte) {
	if c.leaf < 0 || c.leaf >= len(c.m.leaves) {
		return nil, nil
	}
	p := c.m.leaves[c.leaf][c.at]
	return p.key, p.value
}

func (c *memCursor) seek(key []byte) (k, v []byte) {
	c.leaf, c.at, _ = c.m.locate(key)
	return c.here()
}

func (c *memCursor) next() (k, v []byte) {
	if c.leaf < 0 || c.leaf >= len(c.m.leaves) {
		return nil, nil
	}
	if c.at++; c.at == len(c.m.leaves[c.leaf]) {
		c.leaf, c.at = c.leaf+1, 0
	}
	return c.here()
}

func (c *memCursor) prev() (k, v []byte) {
	if c.at--; c.at < 0 {
		if c.leaf--; c.leaf < 0 {
			c.leaf = -1
			return nil, nil
		}
		c.at = len(c.m.leaves[c.leaf]) - 1
	}
	return c.here()
}
