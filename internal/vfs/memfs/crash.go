package memfs

import (
	"maps"
	"math/rand/v2"
	"slices"
	"syscall"
)

const sectorSize = 512

// CrashClone returns a new file system that holds what a power loss at this moment would leave: everything durable, and
// about the share keepUnsynced (0 to 1) of what is not, chosen by seed. 0 loses all of it, 1 loses nothing. The original
// goes on as before; see CrashNow for a process that must not.
func (f *FS) CrashClone(seed uint64, keepUnsynced float64) *FS {
	f.mu.Lock() // not RLock: pages are marked shared
	defer f.mu.Unlock()
	c := &crash{keep: keepUnsynced, rng: rand.New(rand.NewPCG(seed, 0x6d656d6673)), done: map[*node]*node{}}
	c.chooseNames(f.pending)
	return f.cloneLocked(c.clone(f.root))
}

// Clone returns a new file system that holds exactly what programs see now, all of it durable.
func (f *FS) Clone() *FS {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := &crash{keep: 1, exact: true, rng: rand.New(rand.NewPCG(0, 0)), done: map[*node]*node{}}
	c.chooseNames(f.pending)
	return f.cloneLocked(c.clone(f.root))
}

// ForgetDirty does to a file what a kernel does when writing it back failed: the un-synced data stays readable but is
// taken for clean, so that the next sync succeeds without making it durable. Size and names are not touched. Use it with
// an injected sync error.
func (f *FS) ForgetDirty(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.lookupLocked(name)
	if err == nil && n.dir {
		err = syscall.EISDIR
	}
	if err != nil {
		return pathError("forget", name, err)
	}
	for i := range n.dirty {
		if p := n.now.page(i); p != nil && !p.shared {
			p.shared = true // the next write to it makes it dirty again, as a new page
		}
	}
	clear(n.dirty)
	return nil
}

// Files returns the names of all files, sorted.
func (f *FS) Files() []string {
	f.mu.RLock()
	defer f.mu.RUnlock()
	var names []string
	var walk func(dir string, n *node)
	walk = func(dir string, n *node) {
		for name, child := range n.live {
			if child.dir {
				walk(dir+"/"+name, child)
			} else {
				names = append(names, dir+"/"+name)
			}
		}
	}
	walk("", f.root)
	slices.Sort(names)
	return names
}

// FlipBit inverts one bit of a file, counted from the first bit of its first byte: the medium went bad. It is as durable
// as what the bit was part of.
func (f *FS) FlipBit(name string, bit int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.lookupLocked(name)
	if err == nil && (n.dir || bit < 0 || bit/8 >= n.now.size) {
		err = syscall.EINVAL
	}
	if err != nil {
		return pathError("flip", name, err)
	}
	i, at := int(bit/8/pageSize), bit/8%pageSize
	flipped := func(im *image) *page {
		c := &page{}
		if p := im.page(i); p != nil {
			c.data = p.data
		}
		c.data[at] ^= 1 << (bit % 8)
		return c
	}
	now, disk := flipped(&n.now), flipped(&n.disk)
	if !n.counted(i) {
		n.used++ // the hole it was part of is none any more; the medium does not ask for space
		f.used++
	}
	n.now.setPage(i, now)
	if _, dirty := n.dirty[i]; !dirty && bit/8 < n.disk.size {
		n.disk.setPage(i, disk)
	}
	return nil
}

func (f *FS) cloneLocked(root *node) *FS {
	g := &FS{root: root, locks: map[*node]bool{}, cap: f.cap}
	seen := map[*node]bool{}
	var count func(n *node)
	count = func(n *node) {
		if !n.dir && !seen[n] {
			seen[n] = true
			g.used += int64(n.used)
		}
		for _, child := range n.live {
			count(child)
		}
	}
	count(root)
	return g
}

// crash decides what survives. It visits everything in a fixed order, so that a seed always means the same.
type crash struct {
	keep  float64
	exact bool // keep what programs see, also where it was taken for clean by mistake
	rng   *rand.Rand
	names map[*node]map[string]*node // names as kept operations left them
	done  map[*node]*node            // originals to clones
}

func (c *crash) kept() bool { return c.rng.Float64() < c.keep }

// chooseNames decides which directory operations survive. One whose name was touched by a lost operation is lost too.
func (c *crash) chooseNames(pending []dirOp) {
	c.names = map[*node]map[string]*node{}
	lost := map[nameKey]bool{}
	for _, op := range pending {
		keep := c.kept()
		for _, ch := range op {
			keep = keep && !lost[nameKey{ch.dir, ch.name}]
		}
		for _, ch := range op {
			if !keep {
				lost[nameKey{ch.dir, ch.name}] = true
				continue
			}
			if c.names[ch.dir] == nil {
				c.names[ch.dir] = map[string]*node{}
			}
			c.names[ch.dir][ch.name] = ch.to // nil: removed
		}
	}
}

func (c *crash) clone(n *node) *node {
	if d, ok := c.done[n]; ok {
		d.links++
		return d
	}
	if !n.dir {
		d := c.cloneFile(n)
		c.done[n] = d
		return d
	}
	d := newDir()
	c.done[n] = d
	names := maps.Clone(n.durable)
	for name, to := range c.names[n] {
		setName(names, nameChange{name: name, to: to})
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		child := c.clone(names[name])
		d.live[name], d.durable[name] = child, child
	}
	return d
}

func (c *crash) cloneFile(n *node) *node {
	d := newFile()
	d.links = 1
	if c.exact {
		return c.fill(d, n, image{size: n.now.size, pages: slices.Clone(n.now.pages)})
	}
	im := image{size: n.disk.size, pages: slices.Clone(n.disk.pages)}
	grown := n.cutAt < 0 // writes behind the last durable size count only if a truncation before them did
	if n.cutAt >= 0 && c.kept() {
		im.truncate(n.cutAt)
		grown = true
	}
	if grown && n.now.size > im.size {
		im.size = c.sizeBetween(im.size, n.now.size)
	}
	for _, i := range slices.Sorted(maps.Keys(n.dirty)) {
		if !c.kept() || !grown && int64(i+1)*pageSize > n.cutAt {
			continue
		}
		im.setPage(i, c.tear(n.disk.page(i), n.now.page(i)))
	}
	im.truncate(im.size)
	return c.fill(d, n, im)
}

// fill makes im the durable content of d, the clone of n.
func (c *crash) fill(d, n *node, im image) *node {
	d.reserved = min(n.reserved, pagesFor(im.size))
	for i, p := range im.pages {
		if p != nil && !p.shared {
			p.shared = true
		}
		if p != nil && i >= d.reserved {
			d.used++
		}
	}
	d.used += d.reserved
	d.now = im
	d.disk = image{size: im.size, pages: slices.Clone(im.pages)}
	return d
}

// sizeBetween decides how much of an un-synced growth survives: none, all, or up to a sector in between.
func (c *crash) sizeBetween(old, now int64) int64 {
	switch {
	case !c.kept():
		return old
	case c.keep >= 1 || c.rng.IntN(2) == 0:
		return now
	}
	at := (old + c.rng.Int64N(now-old+1)) &^ (sectorSize - 1)
	return max(old, at)
}

// tear returns what of a page reached the disk: usually all of it, sometimes some of its sectors.
func (c *crash) tear(old, now *page) *page {
	if c.keep >= 1 || c.rng.IntN(4) != 0 {
		return now
	}
	torn := &page{}
	if old != nil {
		torn.data = old.data
	}
	for at := 0; at < pageSize; at += sectorSize {
		if c.rng.IntN(2) == 0 {
			if now != nil {
				copy(torn.data[at:at+sectorSize], now.data[at:])
			} else {
				clear(torn.data[at : at+sectorSize])
			}
		}
	}
	return torn
}
