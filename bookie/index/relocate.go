package index

import (
	"cmp"
	"slices"

	"github.com/binderylog/bindery/entrylog"
)

// Relocate implements Index.
func (x *runIndex) Relocate(moves []Move) (moved int, err error) {
	if len(moves) == 0 {
		return 0, nil
	}
	moves = slices.Clone(moves)
	slices.SortStableFunc(moves, func(a, b Move) int {
		return cmp.Or(cmp.Compare(a.Ledger, b.Ledger), cmp.Compare(a.Entry, b.Entry))
	})
	err = x.write(func(tx kvTx) error {
		moved = 0
		for rest := moves; len(rest) > 0; {
			n, changed, err := x.relocateSome(tx, rest)
			if err != nil {
				return err
			}
			moved += changed
			rest = rest[n:]
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	x.count.relocated.Add(uint64(moved))
	return moved, nil
}

// relocateSome works on the longest stretch of moves whose runs stand next to one another, so that what was copied
// together ends up in one run. It returns how many moves it took, and how many of them it made.
func (x *runIndex) relocateSome(tx kvTx, moves []Move) (taken, moved int, err error) {
	ledger := moves[0].Ledger
	c := tx.cursor(bucketRuns)
	var out []entrylog.Run
	from, to := int64(-1), int64(-1)
	for r, err := x.seekRun(c, ledger, moves[0].Entry); ; r, err = x.nextRun(c, ledger) {
		if err != nil {
			return 0, 0, err
		}
		if r == nil { // behind the last run there is nothing to move
			taken += skip(moves[taken:], ledger, 1<<63-1)
			break
		}
		taken += skip(moves[taken:], ledger, r.First-1)
		n := skip(moves[taken:], ledger, r.Last())
		if n == 0 {
			break
		}
		pieces, changed := moveRun(&r.Run, moves[taken:taken+n])
		out = append(out, pieces...)
		taken += n
		moved += changed
		if from < 0 {
			from = r.First
		}
		to = r.Last()
	}
	if moved == 0 {
		return taken, 0, nil
	}
	g, err := x.region(tx, ledger, from, to)
	if err != nil {
		return 0, 0, err
	}
	return taken, moved, x.replace(tx, g, joined(out))
}

// skip counts the moves of the ledger up to an entry.
func skip(moves []Move, ledger, upTo int64) int {
	n := 0
	for n < len(moves) && moves[n].Ledger == ledger && moves[n].Entry <= upTo {
		n++
	}
	return n
}

// moveRun applies moves, in order of entry, to a run; those that expect another place than the entry has do nothing.
func moveRun(r *entrylog.Run, moves []Move) (pieces []entrylog.Run, moved int) {
	done := 0 // entries of r in pieces
	for _, m := range moves {
		i := int(m.Entry - r.First)
		if i < done || r.Location(i) != m.Old || m.Old.Size != m.New.Size { // i < done: the same entry twice
			continue
		}
		if i > done {
			pieces = append(pieces, r.Slice(done, i))
		}
		pieces = append(pieces, entrylog.Run{Ledger: r.Ledger, First: m.Entry, Log: m.New.Log, Offset: m.New.Offset, Count: 1, Sizes: []uint32{m.New.Size}})
		done = i + 1
		moved++
	}
	if done < int(r.Count) {
		pieces = append(pieces, r.Slice(done, int(r.Count)))
	}
	return pieces, moved
}
