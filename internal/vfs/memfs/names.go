package memfs

// A nameChange sets one name in one directory; to is nil where the name goes away.
type nameChange struct {
	dir  *node
	name string
	to   *node
}

// A dirOp is one operation on names: creating and removing are one change, renaming is two that a crash keeps or loses
// together.
type dirOp []nameChange

type nameKey struct {
	dir  *node
	name string
}

// applyLocked makes an operation visible and notes that it is not durable.
func (f *FS) applyLocked(op dirOp) {
	for _, c := range op {
		setName(c.dir.live, c)
	}
	f.pending = append(f.pending, op)
}

func setName(names map[string]*node, c nameChange) {
	if c.to == nil {
		delete(names, c.name)
	} else {
		names[c.name] = c.to
	}
}

// commitNamesLocked makes the operations on dir durable, and with them the earlier ones that they build on.
func (f *FS) commitNamesLocked(dir *node) {
	commit := make([]bool, len(f.pending))
	needed := map[nameKey]bool{}
	for i := len(f.pending) - 1; i >= 0; i-- {
		for _, c := range f.pending[i] {
			commit[i] = commit[i] || c.dir == dir || needed[nameKey{c.dir, c.name}]
		}
		if commit[i] {
			for _, c := range f.pending[i] {
				needed[nameKey{c.dir, c.name}] = true
			}
		}
	}
	rest := f.pending[:0]
	for i, op := range f.pending {
		if !commit[i] {
			rest = append(rest, op)
			continue
		}
		for _, c := range op {
			setName(c.dir.durable, c)
		}
	}
	clear(f.pending[len(rest):])
	f.pending = rest
}

// commitAllNames makes every name durable.
func (f *FS) commitAllNames() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, op := range f.pending {
		for _, c := range op {
			setName(c.dir.durable, c)
		}
	}
	f.pending = nil
}
