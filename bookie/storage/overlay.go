package storage

import (
	"iter"
	"slices"
	"sync/atomic"

	"github.com/binderylog/bindery/entrylog"
)

// overlay serves the runs and states of the logs that the index does not hold yet (decision 10). Readers see an immutable
// list of pages; the flusher adds pages, the index keeper takes a log's pages away once the index has them. Pages of one
// log are merged as they come, so that their number stays logarithmic in the number of checkpoints.
type overlay struct {
	view atomic.Pointer[overlayView] // replaced under dir.overlayMu
}

// overlayView holds pages from the oldest to the newest.
type overlayView struct {
	pages []*page
}

func (o *overlay) load() []*page {
	if v := o.view.Load(); v != nil {
		return v.pages
	}
	return nil
}

// add puts a page on top and merges the newest pages of its log while the one below is not at least twice as large. The
// caller holds dir.overlayMu.
func (o *overlay) add(p *page) {
	pages := slices.Clone(o.load())
	for n := len(pages); n > 0 && pages[n-1].log == p.log && pages[n-1].size() < 2*p.size(); n-- {
		p = mergePages(pages[n-1], p)
		pages = pages[:n-1]
	}
	o.view.Store(&overlayView{pages: append(pages, p)})
}

// drop takes away the pages of a log. The caller holds dir.overlayMu.
func (o *overlay) drop(log entrylog.LogID) {
	pages := slices.DeleteFunc(slices.Clone(o.load()), func(p *page) bool { return p.log == log })
	o.view.Store(&overlayView{pages: pages})
}

// merged returns one page with everything the overlay has of a log, or nil.
func (o *overlay) merged(log entrylog.LogID) *page {
	var all *page
	for _, p := range o.load() {
		switch {
		case p.log != log:
		case all == nil:
			all = p
		default:
			all = mergePages(all, p)
		}
	}
	return all
}

// find returns an entry's newest place in a log above floor.
func (o *overlay) find(ledger, entry int64, floor entrylog.LogID) (entrylog.Location, bool) {
	pages := o.load()
	for i := len(pages) - 1; i >= 0; i-- {
		if pages[i].log <= floor {
			continue
		}
		if loc, ok := pages[i].find(ledger, entry); ok {
			return loc, true
		}
	}
	return entrylog.Location{}, false
}

// last returns the ledger's highest entry id in logs above floor.
func (o *overlay) last(ledger int64, floor entrylog.LogID) (last int64, ok bool) {
	last = -1
	for _, p := range o.load() {
		if p.log <= floor {
			continue
		}
		if n, found := p.last(ledger); found {
			last, ok = max(last, n), true
		}
	}
	return last, ok
}

// state returns the newest state of a ledger.
func (o *overlay) state(id int64) ([]byte, bool) {
	pages := o.load()
	for i := len(pages) - 1; i >= 0; i-- {
		if b, ok := pages[i].state(id); ok {
			return b, true
		}
	}
	return nil, false
}

// stats returns the number of pages and their bytes.
func (o *overlay) stats() (pages, bytes int) {
	for _, p := range o.load() {
		pages++
		bytes += p.size()
	}
	return pages, bytes
}

// mergePages joins two pages of one log; where both have an entry or a state, the newer one's counts.
func mergePages(older, newer *page) *page {
	w := newPageBuilder(older.log)
	for r := range mergeRuns(older.runs(), newer.runs()) {
		w.add(&r)
	}
	i, j := 0, 0
	for i < len(older.stateIDs) || j < len(newer.stateIDs) {
		switch {
		case j == len(newer.stateIDs) || i < len(older.stateIDs) && older.stateIDs[i] < newer.stateIDs[j]:
			w.state(older.stateIDs[i], older.stateAt(i))
			i++
		default:
			if i < len(older.stateIDs) && older.stateIDs[i] == newer.stateIDs[j] {
				i++
			}
			w.state(newer.stateIDs[j], newer.stateAt(j))
			j++
		}
	}
	return w.finish()
}

// mergeRuns merges two sorted sequences of runs without overlaps into one, cutting out of the older runs what the newer
// ones hold.
func mergeRuns(older, newer iter.Seq[entrylog.Run]) iter.Seq[entrylog.Run] {
	return func(yield func(entrylog.Run) bool) {
		nextNew, stop := iter.Pull(newer)
		defer stop()
		n, have := nextNew()
		for o := range older {
			for {
				// Newer runs that end before o begins.
				for have && (n.Ledger < o.Ledger || n.Ledger == o.Ledger && n.Last() < o.First) {
					if !yield(n) {
						return
					}
					n, have = nextNew()
				}
				if !have || n.Ledger != o.Ledger || n.First > o.Last() {
					if !yield(o) { // nothing newer inside o
						return
					}
					break
				}
				// n overlaps o: the part of o before n, then n, then the rest of o.
				if o.First < n.First {
					if !yield(o.Slice(0, int(n.First-o.First))) {
						return
					}
				}
				if n.Last() >= o.Last() {
					break // the rest of o is covered; n may also cover the next older run
				}
				rest := o.Slice(int(n.Last()-o.First)+1, int(o.Count))
				if !yield(n) {
					return
				}
				n, have = nextNew()
				o = rest
			}
		}
		for have {
			if !yield(n) {
				return
			}
			n, have = nextNew()
		}
	}
}

// pagesOf builds pages from runs in the order of their checkpoints (a later one wins), and states.
func pagesOf(log entrylog.LogID, runs []entrylog.Run, states []entrylog.LedgerState) *page {
	var all *page
	flush := func(w *pageBuilder) {
		if p := w.finish(); all == nil {
			all = p
		} else {
			all = mergePages(all, p)
		}
	}
	w := newPageBuilder(log)
	for i := range runs {
		if i > 0 && (runs[i].Ledger < runs[i-1].Ledger || runs[i].Ledger == runs[i-1].Ledger && runs[i].First <= runs[i-1].Last()) {
			flush(w)
			w = newPageBuilder(log)
		}
		w.add(&runs[i])
	}
	for _, s := range states {
		w.state(s.Ledger, s.Data)
	}
	flush(w)
	return all
}
