package index

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/binderylog/bindery/entrylog"
	"github.com/binderylog/bindery/internal/invariant"
)

// txBytesMax bounds what one transaction writes, keys and values counted: a larger one would hold the pages it replaces,
// and the writer, for too long. It is decision 10's 16 MiB less what pages add.
const txBytesMax = 8 << 20

// runBytesGuess is what a run takes in a transaction besides its sizes.
const runBytesGuess = 48

// Ingest implements Index.
func (x *runIndex) Ingest(ctx context.Context, log entrylog.LogInfo, runs iter.Seq2[entrylog.Run, error], states []entrylog.LedgerState) error {
	in := &ingest{x: x, age: age{log.Precedence, log.ID}, ledger: -1}
	if err := in.begin(); err != nil {
		return fmt.Errorf("ingest entry log %s: %w", log.ID, err)
	}
	for r, err := range runs {
		if err == nil {
			err = ctx.Err()
		}
		if err == nil {
			err = in.add(r)
		}
		if err != nil {
			return fmt.Errorf("ingest entry log %s: %w", log.ID, err)
		}
	}
	if err := in.finish(ctx, states); err != nil {
		return fmt.Errorf("ingest entry log %s: %w", log.ID, err)
	}
	x.count.ingestedLogs.Add(1)
	invariant.CrashPoint("index.ingested")
	return nil
}

// ingest is one call of Ingest: runs are gathered until a transaction is full.
type ingest struct {
	x      *runIndex
	age    age
	batch  []entrylog.Run
	bytes  int
	ledger int64 // of the last run, -1 at first
}

// begin notes the log before any of its runs, so that their age is known should the process end half way.
func (in *ingest) begin() error {
	key := logKey(in.age.log)
	return in.x.write(func(tx kvTx) error {
		if v := tx.get(bucketLogs, key[:]); v != nil {
			if _, err := decodeLog(key[:], v); err == nil {
				return nil
			}
		}
		rec := logRecord{precedence: in.age.precedence}
		return tx.put(bucketLogs, key[:], rec.encode(key[:]))
	})
}

func (in *ingest) add(r entrylog.Run) error {
	if err := r.Check(); err != nil {
		return err
	}
	if r.Log != in.age.log {
		return fmt.Errorf("run of ledger %d lies in log %s", r.Ledger, r.Log)
	}
	if r.Ledger < in.ledger {
		return fmt.Errorf("run of ledger %d comes after one of ledger %d", r.Ledger, in.ledger)
	}
	in.ledger = r.Ledger
	for i := 0; i < int(r.Count); i += runEntriesMax {
		piece := r.Slice(i, min(i+runEntriesMax, int(r.Count)))
		in.batch = append(in.batch, piece)
		in.bytes += runBytesGuess + 3*len(piece.Sizes)
	}
	if in.bytes < txBytesMax {
		return nil
	}
	return in.flush(nil)
}

// flush writes the batch, and then, in the same transaction, what `also` writes.
func (in *ingest) flush(also func(tx kvTx) error) error {
	err := in.x.write(func(tx kvTx) error {
		ages := in.x.ages(tx)
		for i := 0; i < len(in.batch); {
			j := i + 1
			for j < len(in.batch) && in.batch[j].Ledger == in.batch[i].Ledger {
				j++
			}
			if err := in.x.putRuns(tx, ages, in.batch[i:j]); err != nil {
				return err
			}
			i = j
		}
		if also != nil {
			return also(tx)
		}
		return nil
	})
	in.batch, in.bytes = in.batch[:0], 0
	return err
}

// finish writes what is left, the states, and that the log is complete.
func (in *ingest) finish(ctx context.Context, states []entrylog.LedgerState) error {
	complete := func(tx kvTx) error {
		key := logKey(in.age.log)
		rec := logRecord{precedence: in.age.precedence, complete: true}
		return tx.put(bucketLogs, key[:], rec.encode(key[:]))
	}
	for len(states) > 0 {
		n, size := 0, in.bytes
		for n < len(states) && (n == 0 || size < txBytesMax) {
			size += runBytesGuess + len(states[n].Data)
			n++
		}
		part := states[:n]
		states = states[n:]
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := in.flush(func(tx kvTx) error {
			for _, s := range part {
				if err := in.x.putState(tx, in.age, s); err != nil {
					return err
				}
			}
			if len(states) == 0 {
				return complete(tx)
			}
			return nil
		}); err != nil {
			return err
		}
		if len(states) == 0 {
			return nil
		}
	}
	return in.flush(complete)
}

// putState stores a state unless the one that is there comes from a newer log.
func (x *runIndex) putState(tx kvTx, a age, s entrylog.LedgerState) error {
	if s.Ledger < 0 {
		return fmt.Errorf("state of ledger %d: negative id", s.Ledger)
	}
	old, err := x.stateOf(tx, s.Ledger)
	if err != nil {
		return err
	}
	if old != nil && a.before(old.age) {
		return nil
	}
	record, err := x.ledgerOf(tx, s.Ledger)
	if err != nil {
		return err
	}
	key := ledgerKey(s.Ledger)
	if record == nil {
		record = &ledgerRecord{last: -1}
	}
	if !record.hasState {
		record.hasState = true
		if err := tx.put(bucketLedgers, key[:], record.encode(key[:])); err != nil {
			return err
		}
	}
	rec := stateRecord{age: a, data: s.Data}
	return tx.put(bucketStates, key[:], rec.encode(key[:]))
}

// logAges knows the ages of logs, reading each once in a transaction.
type logAges struct {
	tx    kvTx
	known map[entrylog.LogID]age
}

func (x *runIndex) ages(tx kvTx) *logAges { return &logAges{tx, map[entrylog.LogID]age{}} }

// of returns a log's age. A log that is not noted any more was removed; then nothing newer than it can be confused with it.
func (l *logAges) of(id entrylog.LogID) (age, error) {
	if a, ok := l.known[id]; ok {
		return a, nil
	}
	a := age{id, id}
	key := logKey(id)
	if v := l.tx.get(bucketLogs, key[:]); v != nil {
		rec, err := decodeLog(key[:], v)
		if err != nil {
			return age{}, fmt.Errorf("record of log %s: %w", id, err)
		}
		a.precedence = rec.precedence
	}
	l.known[id] = a
	return a, nil
}

// newer reports whether a's copy of an entry is newer than b's.
func (l *logAges) newer(a, b *entrylog.Run) (bool, error) {
	if a.Log == b.Log {
		return a.Offset > b.Offset, nil
	}
	ageA, err := l.of(a.Log)
	if err != nil {
		return false, err
	}
	ageB, err := l.of(b.Log)
	if err != nil {
		return false, err
	}
	return ageB.before(ageA), nil
}

// putRuns adds runs of one ledger, in order of first entry; they may overlap one another and what is there.
func (x *runIndex) putRuns(tx kvTx, ages *logAges, runs []entrylog.Run) error {
	fresh, err := layered(runs, ages)
	if err != nil {
		return err
	}
	region, err := x.region(tx, fresh[0].Ledger, fresh[0].First, fresh[len(fresh)-1].Last())
	if err != nil {
		return err
	}
	merged, err := overlay(region.runs, fresh, ages)
	if err != nil {
		return err
	}
	return x.replace(tx, region, merged)
}

// layered turns runs in order of first entry, of which later ones may overlap earlier ones, into runs that do not overlap.
func layered(runs []entrylog.Run, ages *logAges) ([]entrylog.Run, error) {
	flat := true
	for i := 1; i < len(runs); i++ {
		flat = flat && runs[i-1].Last() < runs[i].First
	}
	if flat {
		return runs, nil
	}
	runs = slices.Clone(runs)
	slices.SortStableFunc(runs, func(a, b entrylog.Run) int { return cmp.Compare(a.First, b.First) })
	var out []entrylog.Run
	for i := range runs {
		from := len(out) // the first run that the new one can overlap
		for from > 0 && out[from-1].Last() >= runs[i].First {
			from--
		}
		merged, err := overlay(slices.Clone(out[from:]), runs[i:i+1], ages)
		if err != nil {
			return nil, err
		}
		out = append(out[:from], merged...)
	}
	return out, nil
}

// overlay merges two lists of runs of one ledger. Neither overlaps itself; where they overlap one another, the newer copy
// of each entry stays.
func overlay(a, b []entrylog.Run, ages *logAges) ([]entrylog.Run, error) {
	out := make([]entrylog.Run, 0, len(a)+len(b))
	var restA, restB *entrylog.Run // what is left of the run at hand
	for {
		if restA == nil && len(a) > 0 {
			r := a[0]
			restA, a = &r, a[1:]
		}
		if restB == nil && len(b) > 0 {
			r := b[0]
			restB, b = &r, b[1:]
		}
		switch {
		case restA == nil && restB == nil:
			return joined(out), nil
		case restB == nil || restA != nil && restA.Last() < restB.First:
			out, restA = append(out, *restA), nil
		case restA == nil || restB.Last() < restA.First:
			out, restB = append(out, *restB), nil
		case restA.First < restB.First:
			out, restA = cut(out, restA, int(restB.First-restA.First))
		case restB.First < restA.First:
			out, restB = cut(out, restB, int(restA.First-restB.First))
		default:
			n := int(min(restA.Count, restB.Count))
			newer, err := ages.newer(restB, restA)
			if err != nil {
				return nil, err
			}
			if newer {
				out, restB = cut(out, restB, n)
				_, restA = cut(nil, restA, n)
			} else {
				out, restA = cut(out, restA, n)
				_, restB = cut(nil, restB, n)
			}
		}
	}
}

// cut appends the first n entries of r to out and returns what is left of r, nil for nothing.
func cut(out []entrylog.Run, r *entrylog.Run, n int) ([]entrylog.Run, *entrylog.Run) {
	out = append(out, r.Slice(0, n))
	if n == int(r.Count) {
		return out, nil
	}
	rest := r.Slice(n, int(r.Count))
	return out, &rest
}

// joined puts runs together that follow one another in id and place, up to runEntriesMax entries. It works in place.
func joined(runs []entrylog.Run) []entrylog.Run {
	out := runs[:0]
	for _, r := range runs {
		if n := len(out); n > 0 && out[n-1].Count+r.Count <= runEntriesMax && follows(&out[n-1], &r) {
			out[n-1] = join(&out[n-1], &r)
			continue
		}
		out = append(out, r)
	}
	return out
}

func follows(a, b *entrylog.Run) bool {
	return a.Log == b.Log && a.Last()+1 == b.First && a.Offset+a.Bytes() == b.Offset
}

func join(a, b *entrylog.Run) entrylog.Run {
	j := *a
	j.Count += b.Count
	if len(a.Sizes) == 1 && len(b.Sizes) == 1 && a.Sizes[0] == b.Sizes[0] {
		return j
	}
	j.Sizes = make([]uint32, 0, j.Count)
	for i := range int(a.Count) {
		j.Sizes = append(j.Sizes, a.Size(i))
	}
	for i := range int(b.Count) {
		j.Sizes = append(j.Sizes, b.Size(i))
	}
	return j
}

// region is the part of a ledger that a change touches: the runs that overlap it, and its neighbours.
type region struct {
	ledger int64
	record *ledgerRecord // nil: the ledger is new
	prev   int64         // last entry before it, -1 for none
	runs   []entrylog.Run
	links  []int64  // of each of runs
	next   *RunInfo // the run behind it, or nil
}

// region reads the runs that overlap [from, to], and proves that they and their neighbours link up.
func (x *runIndex) region(tx kvTx, ledger, from, to int64) (*region, error) {
	g := &region{ledger: ledger, prev: -1}
	var err error
	if g.record, err = x.ledgerOf(tx, ledger); err != nil {
		return nil, err
	}
	if g.record == nil || g.record.last < from { // all of it lies behind what is there
		if g.record != nil {
			g.prev = g.record.last
		}
		return g, nil
	}
	if g.prev, err = x.lastBefore(tx, ledger, from); err != nil {
		return nil, err
	}
	at := g.prev
	c := tx.cursor(bucketRuns)
	for r, err := x.seekRun(c, ledger, from); ; r, err = x.nextRun(c, ledger) {
		if err != nil {
			return nil, err
		}
		if r == nil {
			break
		}
		if r.Prev != at {
			return nil, x.damaged(ledger, "the run from entry %d links to entry %d, but before it stands entry %d", r.First, r.Prev, at)
		}
		if r.First > to {
			g.next = r
			break
		}
		at = r.Last()
		g.runs = append(g.runs, r.Run)
		g.links = append(g.links, r.Prev)
	}
	if g.next == nil && at != g.record.last {
		return nil, x.damaged(ledger, "its record ends at entry %d, but its runs at %d", g.record.last, at)
	}
	return g, nil
}

// replace puts other runs in the place of a region's, and mends the links and the ledger's record.
func (x *runIndex) replace(tx kvTx, g *region, runs []entrylog.Run) error {
	prev := g.prev
	old := 0 // both lists are in order of last entry
	drop := func(before int64) error {
		for ; old < len(g.runs) && g.runs[old].Last() < before; old++ {
			key := runKey(g.ledger, g.runs[old].Last())
			if err := tx.del(bucketRuns, key[:]); err != nil {
				return err
			}
		}
		return nil
	}
	for i := range runs {
		r := uniform(&runs[i])
		if err := drop(r.Last()); err != nil {
			return err
		}
		same := false
		if old < len(g.runs) && g.runs[old].Last() == r.Last() {
			same = g.links[old] == prev && sameRun(&g.runs[old], r)
			old++
		}
		if !same {
			key := runKey(g.ledger, r.Last())
			if err := tx.put(bucketRuns, key[:], appendRun(nil, key[:], r, prev)); err != nil {
				return err
			}
		}
		prev = r.Last()
	}
	for ; old < len(g.runs); old++ {
		key := runKey(g.ledger, g.runs[old].Last())
		if err := tx.del(bucketRuns, key[:]); err != nil {
			return err
		}
	}
	if g.next != nil && g.next.Prev != prev {
		key := runKey(g.ledger, g.next.Last())
		if err := tx.put(bucketRuns, key[:], appendRun(nil, key[:], &g.next.Run, prev)); err != nil {
			return err
		}
	}
	rec := ledgerRecord{last: -1}
	if g.record != nil {
		rec = *g.record
	}
	before := rec
	rec.runs += uint64(len(runs)) - uint64(len(g.runs)) // may wrap, and comes back
	if g.next == nil {
		rec.last = prev
	}
	if g.record != nil && rec == before {
		return nil
	}
	return x.putLedger(tx, g.ledger, &rec)
}

// uniform writes equal sizes as one.
func uniform(r *entrylog.Run) *entrylog.Run {
	if len(r.Sizes) == 1 || slices.ContainsFunc(r.Sizes, func(s uint32) bool { return s != r.Sizes[0] }) {
		return r
	}
	u := *r
	u.Sizes = r.Sizes[:1:1]
	return &u
}

// putLedger stores a ledger's record, or deletes it when nothing is left of the ledger.
func (x *runIndex) putLedger(tx kvTx, ledger int64, rec *ledgerRecord) error {
	key := ledgerKey(ledger)
	if rec.runs == 0 {
		rec.last = -1
		if !rec.hasState {
			return tx.del(bucketLedgers, key[:])
		}
	}
	return tx.put(bucketLedgers, key[:], rec.encode(key[:]))
}

func sameRun(a, b *entrylog.Run) bool {
	return a.First == b.First && a.Log == b.Log && a.Offset == b.Offset && a.Count == b.Count && slices.Equal(a.Sizes, b.Sizes)
}
