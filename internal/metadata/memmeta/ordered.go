package memmeta

import (
	"slices"
	"sort"
	"strings"
)

// chunkMax is the size at which a chunk splits: small enough that shifting one is cheap, large enough that the list of
// chunks stays short for a million keys.
const chunkMax = 512

// ordered is a set of nodes in key order: a sorted list of sorted, non-empty chunks.
type ordered struct{ chunks [][]*node }

// find returns where key is, or where it belongs.
func (o *ordered) find(key string) (c, i int, found bool) {
	// The last chunk whose first key is not above the key; a key below all of them belongs to the first.
	c = max(0, sort.Search(len(o.chunks), func(j int) bool { return o.chunks[j][0].key > key })-1)
	if len(o.chunks) == 0 {
		return 0, 0, false
	}
	i, found = slices.BinarySearchFunc(o.chunks[c], key, func(n *node, k string) int { return strings.Compare(n.key, k) })
	return c, i, found
}

func (o *ordered) get(key string) *node {
	if c, i, found := o.find(key); found {
		return o.chunks[c][i]
	}
	return nil
}

// set inserts n or replaces the node with its key.
func (o *ordered) set(n *node) {
	c, i, found := o.find(n.key)
	switch {
	case found:
		o.chunks[c][i] = n
		return
	case len(o.chunks) == 0:
		o.chunks = [][]*node{{n}}
		return
	}
	o.chunks[c] = slices.Insert(o.chunks[c], i, n)
	if full := o.chunks[c]; len(full) >= chunkMax {
		right := slices.Clone(full[chunkMax/2:])
		o.chunks[c] = slices.Clip(full[:chunkMax/2])
		o.chunks = slices.Insert(o.chunks, c+1, right)
	}
}

// remove deletes the node with that key and reports whether there was one.
func (o *ordered) remove(key string) bool {
	c, i, found := o.find(key)
	if !found {
		return false
	}
	if o.chunks[c] = slices.Delete(o.chunks[c], i, i+1); len(o.chunks[c]) == 0 {
		o.chunks = slices.Delete(o.chunks, c, c+1)
	}
	return true
}

// from calls fn for each node at or above key, in order, until fn returns false.
func (o *ordered) from(key string, fn func(*node) bool) {
	if len(o.chunks) == 0 {
		return
	}
	c, i, _ := o.find(key)
	for ; c < len(o.chunks); c, i = c+1, 0 {
		for ; i < len(o.chunks[c]); i++ {
			if !fn(o.chunks[c][i]) {
				return
			}
		}
	}
}
