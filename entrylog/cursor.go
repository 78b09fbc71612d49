package entrylog

import (
	"container/heap"
	"iter"
	"slices"

	"github.com/binderylog/bindery/internal/corrupt"
)

// chunkRuns iterates over the run table in [off, end), which must hold exactly rows rows.
func chunkRuns(w *walker, off, end int64, rows uint64) iter.Seq2[Run, error] {
	return func(yield func(Run, error) bool) {
		var chunk []Run
		seen := uint64(0)
		for at := off; at < end; {
			body, next, err := w.expect(at, kindRuns)
			if err == nil {
				if chunk, err = decodeRuns(chunk[:0], w.m.id, body); err != nil {
					err = corrupt.New(w.path, at, "run table", err)
				}
			}
			if err != nil {
				yield(Run{}, err)
				return
			}
			for _, r := range chunk {
				if !yield(r, nil) {
					return
				}
			}
			seen += uint64(len(chunk))
			at = next
		}
		if seen != rows {
			yield(Run{}, corrupt.Errorf(w.path, off, "run table", "%d rows, want %d", seen, rows))
		}
	}
}

// chunkStates returns the ledger states in [off, end), which must be exactly rows. On an error it returns what came before.
func chunkStates(w *walker, off, end int64, rows uint64) ([]LedgerState, error) {
	var states []LedgerState
	for at := off; uint64(len(states)) < rows && at < end; {
		body, next, err := w.expect(at, kindStates)
		if err != nil {
			return states, err
		}
		if states, err = decodeStates(states, body); err != nil {
			return states, corrupt.New(w.path, at, "ledger states", err)
		}
		at = next
	}
	if uint64(len(states)) != rows {
		return states, corrupt.Errorf(w.path, off, "ledger states", "%d rows, want %d", len(states), rows)
	}
	return states, nil
}

// scanRuns builds the runs of the entries in [off, end) from the records themselves, in order of offset. It returns
// where the first record lies that does not parse, or end.
func scanRuns(w *walker, off, end int64) (runs []Run, stop int64, err error) {
	var b RunBuilder
	for off < end {
		kind, body, next, err := w.at(off)
		if corrupt.Is(err) || err == nil && kind != kindEntry {
			break
		}
		if err != nil {
			return nil, off, err
		}
		ledger, entry := IDs(body)
		b.Add(ledger, entry, Location{Log: w.m.id, Offset: off, Size: uint32(len(body))})
		off = next
	}
	return b.Runs(), off, nil
}

// checkpointRuns iterates over the runs of a checkpoint in order. If its table is damaged, it goes on with the entries
// themselves; what can not be found either way is passed to damaged.
func checkpointRuns(w *walker, c *commit, damaged func(Damage)) iter.Seq2[Run, error] {
	return func(yield func(Run, error) bool) {
		var last *Run
		w.limit, w.step = c.statesAt, tableWindow
		for r, err := range chunkRuns(w, c.tables, c.statesAt, uint64(c.runs)) {
			if err == nil {
				last = &r
				if !yield(r, nil) {
					return
				}
				continue
			}
			if !corrupt.Is(err) {
				yield(Run{}, err)
				return
			}
			w.limit, w.step = c.tables, walkWindow
			runs, stop, err := scanRuns(w, c.start, c.tables)
			if err != nil {
				yield(Run{}, err)
				return
			}
			if stop < c.tables {
				damaged(Damage{Log: w.m.id, Length: c.tables - stop, Runs: true,
					Err: corrupt.Errorf(w.path, stop, "entry log record", "neither it nor the checkpoint's run table can be read")})
			}
			slices.SortFunc(runs, func(a, b Run) int { return compareRuns(&a, &b) })
			for _, r := range runs {
				if last != nil {
					if r.Ledger < last.Ledger || r.Ledger == last.Ledger && r.Last() <= last.Last() {
						continue
					}
					if r.Ledger == last.Ledger && r.First <= last.Last() {
						r = r.Slice(int(last.Last()+1-r.First), int(r.Count))
					}
				}
				if !yield(r, nil) {
					return
				}
			}
			return
		}
	}
}

// mergeRuns merges sequences that are in order into one. It stops at the first error.
func mergeRuns(seqs []iter.Seq2[Run, error]) iter.Seq2[Run, error] {
	if len(seqs) == 1 {
		return seqs[0]
	}
	return func(yield func(Run, error) bool) {
		h := make(runHeap, 0, len(seqs))
		defer func() {
			for _, p := range h {
				p.stop()
			}
		}()
		for _, s := range seqs {
			next, stop := iter.Pull2(s)
			p := &pulled{next: next, stop: stop}
			if !p.advance() {
				stop()
				continue
			}
			h = append(h, p)
		}
		heap.Init(&h)
		for len(h) > 0 {
			p := h[0]
			if !yield(p.run, p.err) || p.err != nil {
				return
			}
			if p.advance() {
				heap.Fix(&h, 0)
				continue
			}
			p.stop()
			heap.Pop(&h)
		}
	}
}

// pulled is one sequence of a merge with its next element.
type pulled struct {
	next func() (Run, error, bool)
	stop func()
	run  Run
	err  error
}

func (p *pulled) advance() (ok bool) {
	p.run, p.err, ok = p.next()
	return ok
}

// runHeap has the smallest run on top; errors come first.
type runHeap []*pulled

func (h runHeap) Len() int { return len(h) }
func (h runHeap) Less(i, j int) bool {
	if h[i].err != nil || h[j].err != nil {
		return h[i].err != nil && h[j].err == nil
	}
	return compareRuns(&h[i].run, &h[j].run) < 0
}
func (h runHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *runHeap) Push(x any)   { *h = append(*h, x.(*pulled)) }
func (h *runHeap) Pop() any {
	old := *h
	n := len(old) - 1
	p := old[n]
	*h = old[:n]
	return p
}
