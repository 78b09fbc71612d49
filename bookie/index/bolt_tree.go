package index

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/binderylog/bindery/internal/corrupt"
)

// bbolt descends branch pages without a bound: one that leads back to itself overflows the stack, which no recover stops.
// So before a file is opened, its branch pages are walked: every page has one parent, and all leaves lie on one level. Leaves
// are not read; there are a hundred of them for each branch page.

const (
	boltPageHeader = 16
	boltElement    = 16 // of a branch and of a leaf page
	boltBranch     = 0x01
	boltLeaf       = 0x02
	boltBucketFlag = 0x01 // of a leaf's element: the value is a bucket
	boltInBucket   = 16   // root page (8), sequence (8)
	boltDepthMax   = 16   // levels of a tree; three hold a billion keys
)

// boltTree walks the pages of a file.
type boltTree struct {
	f        io.ReaderAt
	path     string
	pageSize int64
	pages    uint64 // in use
	deep     bool   // leaves are read too
	parent   map[uint64]struct{}
	ne       binary.ByteOrder
}

// boltPage is a page as far as the walk needs it.
type boltPage struct {
	flags uint16
	body  []byte // behind the header, as long as its elements may be
	count int
}

func (t *boltTree) damaged(page uint64, format string, args ...any) error {
	return corrupt.Errorf(t.path, int64(page)*t.pageSize, "index page", format, args...)
}

// read reads a page with its elements, and for a leaf everything in it.
func (t *boltTree) read(id uint64) (*boltPage, error) {
	if id < 2 || id >= t.pages {
		return nil, t.damaged(id, "page %d lies outside the %d that are in use", id, t.pages)
	}
	var h [boltPageHeader]byte
	if _, err := t.f.ReadAt(h[:], int64(id)*t.pageSize); err != nil {
		return nil, t.damaged(id, "%w", err)
	}
	p := &boltPage{flags: t.ne.Uint16(h[8:]), count: int(t.ne.Uint16(h[10:]))}
	overflow := uint64(t.ne.Uint32(h[12:]))
	switch {
	case t.ne.Uint64(h[:]) != id:
		return nil, t.damaged(id, "it says it is page %d", t.ne.Uint64(h[:]))
	case p.flags != boltBranch && p.flags != boltLeaf:
		return nil, t.damaged(id, "it is neither branch nor leaf, flags are %#x", p.flags)
	case overflow >= t.pages-id:
		return nil, t.damaged(id, "%d pages follow it, %d are in use", overflow, t.pages)
	}
	n := int64(1+overflow)*t.pageSize - boltPageHeader
	if p.flags == boltBranch {
		if p.count == 0 {
			return nil, t.damaged(id, "a branch without children")
		}
		n = min(n, int64(p.count)*boltElement)
	}
	if n < int64(p.count)*boltElement {
		return nil, t.damaged(id, "%d elements do not fit", p.count)
	}
	const pageMax = 16 << 20 // far above what our keys and values lead to
	if n > pageMax {
		return nil, t.damaged(id, "it has %d bytes", n)
	}
	p.body = make([]byte, n)
	if _, err := t.f.ReadAt(p.body, int64(id)*t.pageSize+boltPageHeader); err != nil && !errors.Is(err, io.EOF) {
		return nil, t.damaged(id, "%w", err)
	}
	return p, nil
}

// claim notes that a page is somebody's child.
func (t *boltTree) claim(id uint64) error {
	if id < 2 || id >= t.pages {
		return t.damaged(id, "page %d lies outside the %d that are in use", id, t.pages)
	}
	if _, ok := t.parent[id]; ok {
		return t.damaged(id, "two branches lead to it")
	}
	t.parent[id] = struct{}{}
	return nil
}

// levels walks a tree down to its leaves and returns their ids.
func (t *boltTree) levels(root uint64) ([]uint64, error) {
	if err := t.claim(root); err != nil {
		return nil, err
	}
	level := []uint64{root}
	for range boltDepthMax {
		var next []uint64
		for i, id := range level {
			p, err := t.read(id)
			if err != nil {
				return nil, err
			}
			if p.flags == boltLeaf {
				if i > 0 {
					return nil, t.damaged(id, "a leaf beside branches")
				}
				// As are the others of this level, or bbolt finds no key there.
				return level, t.leaves(level)
			}
			for e := range p.count {
				child := t.ne.Uint64(p.body[e*boltElement+8:])
				if err := t.claim(child); err != nil {
					return nil, err
				}
				next = append(next, child)
			}
		}
		level = next
	}
	return nil, t.damaged(root, "its tree has more than %d levels", boltDepthMax)
}

// leaves reads the leaves of a tree, if the walk is deep.
func (t *boltTree) leaves(level []uint64) error {
	var last []byte
	for _, id := range level {
		if !t.deep {
			return nil
		}
		p, err := t.read(id)
		if err != nil {
			return err
		}
		if p.flags != boltLeaf {
			return t.damaged(id, "a branch beside leaves")
		}
		if last, err = t.elements(p.body, p.count, last); err != nil {
			return t.damaged(id, "%w", err)
		}
	}
	return nil
}

// elements checks that the keys of a leaf lie in it and ascend, from behind a key on, and that none of them claims to be a
// bucket; it returns the last one.
func (t *boltTree) elements(body []byte, count int, last []byte) ([]byte, error) {
	for e := range count {
		b := body[e*boltElement:]
		flags, pos, ksize, vsize := t.ne.Uint32(b), int64(t.ne.Uint32(b[4:])), int64(t.ne.Uint32(b[8:])), int64(t.ne.Uint32(b[12:]))
		if flags != 0 || pos < boltElement || pos+ksize+vsize > int64(len(b)) {
			return nil, fmt.Errorf("element %d: flags %#x, or key of %d and value of %d bytes at %d do not fit", e, flags, ksize, vsize, pos)
		}
		key := b[pos : pos+ksize]
		if last != nil && bytes.Compare(last, key) >= 0 {
			return nil, fmt.Errorf("element %d: the key %x does not follow %x", e, key, last)
		}
		last = key
	}
	return last, nil
}

// walk checks the tree of buckets, and the tree of each of them.
func (t *boltTree) walk(root uint64) error {
	deep := t.deep
	t.deep = false
	leaves, err := t.levels(root)
	t.deep = deep
	if err != nil {
		return err
	}
	for _, id := range leaves {
		p, err := t.read(id)
		if err != nil {
			return err
		}
		if p.flags != boltLeaf {
			return t.damaged(id, "a branch beside leaves")
		}
		for e := range p.count {
			bucket, err := t.bucketRoot(p, e)
			if err != nil {
				return t.damaged(id, "element %d: %w", e, err)
			}
			if bucket == 0 { // its page is part of the value
				continue
			}
			if _, err := t.levels(bucket); err != nil {
				return err
			}
		}
	}
	return nil
}

// bucketRoot returns the root page of the bucket that a leaf's element holds, 0 for an inline one, which it checks.
func (t *boltTree) bucketRoot(p *boltPage, e int) (uint64, error) {
	b := p.body[e*boltElement:]
	flags, pos, ksize, vsize := t.ne.Uint32(b), int64(t.ne.Uint32(b[4:])), int64(t.ne.Uint32(b[8:])), int64(t.ne.Uint32(b[12:]))
	if flags != boltBucketFlag {
		return 0, errors.New("not a bucket")
	}
	if pos < boltElement || pos+ksize+vsize > int64(len(b)) || vsize < boltInBucket {
		return 0, fmt.Errorf("key of %d and value of %d bytes at %d do not fit", ksize, vsize, pos)
	}
	value := b[pos+ksize : pos+ksize+vsize]
	if root := t.ne.Uint64(value); root != 0 {
		return root, nil
	}
	page := value[boltInBucket:]
	if len(page) < boltPageHeader || t.ne.Uint16(page[8:]) != boltLeaf {
		return 0, fmt.Errorf("an inline bucket of %d bytes without a leaf", len(page))
	}
	n := int(t.ne.Uint16(page[10:]))
	if n*boltElement > len(page)-boltPageHeader {
		return 0, fmt.Errorf("an inline bucket with %d elements in %d bytes", n, len(page))
	}
	_, err := t.elements(page[boltPageHeader:], n, nil)
	return 0, err
}
