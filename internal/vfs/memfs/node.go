package memfs

import (
	"bytes"

	"github.com/binderylog/bindery/internal/vfs"
)

const pageSize = vfs.Align

// page is one block of a file. A page with shared set is in more than one place (live and durable, or two clones) and
// is never written to again.
type page struct {
	shared bool // guarded by the FS lock of the FS that is about to write; set before a second FS can see the page
	data   [pageSize]byte
}

// zeroPage stands for a page that was written as zeros: allocated, but at no cost.
var zeroPage = &page{shared: true}

// image is the content of a file: its size and its pages. A nil page is a hole.
type image struct {
	size  int64
	pages []*page
}

func (im *image) page(i int) *page {
	if i < len(im.pages) {
		return im.pages[i]
	}
	return nil
}

func (im *image) setPage(i int, p *page) {
	for len(im.pages) <= i {
		im.pages = append(im.pages, nil)
	}
	im.pages[i] = p
}

// node is a file or a directory.
type node struct {
	dir bool

	// Directory.
	live, durable map[string]*node

	// File.
	now, disk image
	dirty     map[int]struct{} // pages of now that differ from disk by writes since the last sync
	// cutAt is the smallest size the file was truncated to since the last sync, or -1. What disk holds beyond it is
	// gone if the truncation reaches the disk.
	cutAt    int64
	reserved int // pages [0, reserved) count as used whether written or not (Preallocate)
	used     int // pages that count against the capacity
	links    int // live names
	handles  int // open files
}

func newDir() *node {
	return &node{dir: true, live: map[string]*node{}, durable: map[string]*node{}}
}

func newFile() *node { return &node{cutAt: -1, dirty: map[int]struct{}{}} }

// sync makes the whole file durable.
func (n *node) sync() {
	n.commitCut()
	for i := range n.dirty {
		n.syncPage(i)
	}
	n.disk.size = n.now.size
}

// syncRange makes the pages that hold [off, end) durable, and the size.
func (n *node) syncRange(off, end int64) {
	n.commitCut()
	for i := int(off / pageSize); int64(i)*pageSize < end; i++ {
		n.syncPage(i)
	}
	n.disk.size = n.now.size
}

func (n *node) syncPage(i int) {
	if _, ok := n.dirty[i]; !ok {
		return
	}
	delete(n.dirty, i)
	p := n.now.page(i)
	if p != nil && !p.shared { // a page that a clone has must not be written to, not even this
		p.shared = true
	}
	n.disk.setPage(i, p)
}

// commitCut applies a truncation to the durable image.
func (n *node) commitCut() {
	if n.cutAt < 0 {
		return
	}
	n.disk.truncate(n.cutAt)
	n.cutAt = -1
}

// truncate cuts an image, zeroing the rest of its last page.
func (im *image) truncate(size int64) {
	keep := int((size + pageSize - 1) / pageSize)
	if keep < len(im.pages) {
		clear(im.pages[keep:])
		im.pages = im.pages[:keep]
	}
	if in := size % pageSize; in != 0 && keep-1 < len(im.pages) {
		if p := im.pages[keep-1]; p != nil {
			c := &page{}
			copy(c.data[:in], p.data[:in])
			im.pages[keep-1] = c
		}
	}
	im.size = min(im.size, size)
}

// read copies what the image holds at off into p, which must lie within its size.
func (im *image) read(p []byte, off int64) {
	for len(p) > 0 {
		i, in := int(off/pageSize), int(off%pageSize)
		n := min(len(p), pageSize-in)
		if pg := im.page(i); pg != nil {
			copy(p[:n], pg.data[in:])
		} else {
			clear(p[:n])
		}
		p, off = p[n:], off+int64(n)
	}
}

// writable returns page i of the live image for writing, marked dirty. whole says that all of it will be
// overwritten.
func (n *node) writable(i int, whole bool) *page {
	n.dirty[i] = struct{}{}
	p := n.now.page(i)
	if p != nil && !p.shared {
		return p
	}
	c := &page{}
	if p != nil && !whole {
		c.data = p.data
	}
	n.now.setPage(i, c)
	return c
}

// counted says whether page i counts as used.
func (n *node) counted(i int) bool { return i < n.reserved || n.now.page(i) != nil }

// pagesFor returns how many pages hold size bytes.
func pagesFor(size int64) int { return int((size + pageSize - 1) / pageSize) }

// allZero reports whether a whole page's worth of bytes is zero.
func allZero(p []byte) bool { return bytes.Equal(p, zeroPage.data[:]) }
