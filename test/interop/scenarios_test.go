//go:build interop

package interop

import (
	"errors"
	"fmt"
	"slices"

	"time"
)

// scenario is one thing that two clients do together on a fleet: one writes, the other reads or recovers.
type scenario struct {
	name string
	run  func(f *fleet, w, r client) error
}

// scenarios that every pair of clients goes through, in this order.
var scenarios = []scenario{
	{"write, close, read", roundTrip},
	{"digests", allDigests},
	{"striped", striped},
	{"tail", tail},
	{"long poll", longPoll},
	{"recover", recoverOpen},
	{"fence", fence},
	{"empty", recoverEmpty},
	{"batch read", batchRead},
	{"large", large},
	{"force", force},
	{"delete", remove},
}

// faults need a bookie of ours that may be killed.
var faults = []scenario{
	{"ensemble change", ensembleChange},
	{"recover, one down", recoverOneDown},
}

var plain = ledgerSpec{ensemble: 3, write: 3, ack: 2, digest: "CRC32C"}

const (
	size     = 1000
	patience = 3 * time.Minute // with what takes a moment
)

// check compares what a reader returned.
func check(what string, ledger, first, last int64, size int, n int, sum string, err error) error {
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", what, err)
	case int64(n) != last-first+1:
		return fmt.Errorf("%s: %d entries instead of %d", what, n, last-first+1)
	case sum != want(ledger, first, last, size):
		return fmt.Errorf("%s: the content of entries %d to %d is wrong", what, first, last)
	}
	return nil
}

func readAll(r reader, ledger, last int64, size int) error {
	n, sum, err := r.read(0, last)
	return check("read", ledger, 0, last, size, n, sum, err)
}

// written makes a ledger with n entries that is not closed.
func written(c client, s ledgerSpec, n, size int) (writer, error) {
	w, err := c.create(s)
	if err != nil {
		return nil, fmt.Errorf("create: %w", err)
	}
	if n > 0 {
		last, _, err := w.append(n, size)
		if err != nil {
			return nil, fmt.Errorf("append: %w", err)
		}
		if last != int64(n)-1 {
			return nil, fmt.Errorf("append: last entry %d instead of %d", last, n-1)
		}
	}
	return w, nil
}

// sealed opens a ledger, checks that it is closed at last, and reads it.
func sealed(c client, id int64, digest string, recover bool, last int64, size int) error {
	r, err := c.open(id, digest, recover)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	lac, length, closed, err := r.info()
	switch {
	case err != nil:
		return fmt.Errorf("info: %w", err)
	case !closed:
		return errors.New("the ledger is not closed")
	case lac != last:
		return fmt.Errorf("the ledger is closed at %d instead of %d", lac, last)
	case length != lengthOf(last, size):
		return fmt.Errorf("the ledger has %d bytes instead of %d", length, lengthOf(last, size))
	}
	if last >= 0 {
		if err := readAll(r, id, last, size); err != nil {
			return err
		}
	}
	return r.forget()
}

func whole(w, r client, s ledgerSpec, n, size int) error {
	wr, err := written(w, s, n, size)
	if err != nil {
		return err
	}
	if err := wr.close(); err != nil {
		return fmt.Errorf("close: %w", err)
	}
	if err := sealed(r, wr.id(), s.digest, false, int64(n)-1, size); err != nil {
		return err
	}
	return sealed(w, wr.id(), s.digest, true, int64(n)-1, size) // recovery of a closed ledger changes nothing
}

func roundTrip(_ *fleet, w, r client) error { return whole(w, r, plain, 50, size) }

func allDigests(_ *fleet, w, r client) error {
	for _, d := range []string{"CRC32", "MAC", "CRC32C", "DUMMY"} {
		s := plain
		s.digest = d
		if err := whole(w, r, s, 5, size); err != nil {
			return fmt.Errorf("%s: %w", d, err)
		}
	}
	return nil
}

// striped spreads the entries: each bookie has two of three.
func striped(_ *fleet, w, r client) error {
	s := plain
	s.write, s.ack = 2, 2
	return whole(w, r, s, 40, size)
}

// tail follows a ledger that is being written, without fencing its writer.
func tail(_ *fleet, w, r client) error {
	wr, err := written(w, plain, 10, size)
	if err != nil {
		return err
	}
	rd, err := r.open(wr.id(), plain.digest, false)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	for _, last := range []int64{10, 20} {
		if last > 10 {
			if _, _, err := wr.append(9, size); err != nil {
				return fmt.Errorf("append after a reader came: %w", err)
			}
		}
		// Entries that are under way together carry no LAC of each other. One more tells of those before it.
		if _, _, err := wr.append(1, size); err != nil {
			return fmt.Errorf("append after a reader came: %w", err)
		}
		lac, err := await(last-1, rd.lac, patience)
		if err != nil {
			return err
		}
		if lac > last {
			return fmt.Errorf("the LAC is %d, beyond the last entry %d", lac, last)
		}
		n, sum, err := rd.read(0, lac)
		if err := check("tail", wr.id(), 0, lac, size, n, sum, err); err != nil {
			return err
		}
	}
	if err := rd.forget(); err != nil {
		return err
	}
	return wr.close()
}

// await asks until a number is reached.
func await(least int64, ask func() (int64, error), patience time.Duration) (int64, error) {
	deadline := time.Now().Add(patience)
	for {
		n, err := ask()
		if err != nil || n >= least {
			return n, err
		}
		if time.Now().After(deadline) {
			return n, fmt.Errorf("still at %d after %v, %d was expected", n, patience, least)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// longPoll waits for an entry that does not exist yet.
func longPoll(f *fleet, w, r client) error {
	soon := 5 * time.Second
	if f.apache() {
		// A LAC that is no news uses up a waiting long poll of Apache's bookies, which then answer at its end (10 s for ours).
		soon = 15 * time.Second
	}
	wr, err := written(w, plain, 5, size)
	if err != nil {
		return err
	}
	rd, err := r.open(wr.id(), plain.digest, false)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	result := rd.poll(5, 30*time.Second)
	time.Sleep(300 * time.Millisecond)
	begun := time.Now()
	for range 2 { // the second one tells of the first
		if _, _, err := wr.append(1, size); err != nil {
			return fmt.Errorf("append: %w", err)
		}
	}
	got, sum, err := result()
	took := time.Since(begun)
	switch {
	case err != nil:
		return fmt.Errorf("long poll: %w", err)
	case got != 5 || sum != want(wr.id(), 5, 5, size):
		return fmt.Errorf("the long poll brought entry %d instead of 5, or wrong content", got)
	case took > soon:
		return fmt.Errorf("the long poll answered %v after the entry was there", took)
	}
	if err := rd.forget(); err != nil {
		return err
	}
	return wr.close()
}

// recoverOpen ends the ledger of a writer that is still there.
func recoverOpen(_ *fleet, w, r client) error {
	wr, err := written(w, plain, 20, size)
	if err != nil {
		return err
	}
	if err := sealed(r, wr.id(), plain.digest, true, 19, size); err != nil {
		return err
	}
	return sealed(w, wr.id(), plain.digest, false, 19, size)
}

// fence checks that the writer of a recovered ledger notices, and that nothing of it lies beyond the end.
func fence(_ *fleet, w, r client) error {
	wr, err := written(w, plain, 20, size)
	if err != nil {
		return err
	}
	if err := sealed(r, wr.id(), plain.digest, true, 19, size); err != nil {
		return err
	}
	if _, _, err := wr.append(3, size); !errors.Is(err, errFenced) {
		return fmt.Errorf("the old writer's add was answered with %v instead of fenced", err)
	}
	return sealed(r, wr.id(), plain.digest, false, 19, size)
}

// recoverEmpty ends a ledger that its writer never wrote to.
func recoverEmpty(_ *fleet, w, r client) error {
	wr, err := written(w, plain, 0, size)
	if err != nil {
		return err
	}
	return sealed(r, wr.id(), plain.digest, true, -1, size)
}

func batchRead(_ *fleet, w, r client) error {
	wr, err := written(w, plain, 100, size)
	if err != nil {
		return err
	}
	if err := wr.close(); err != nil {
		return fmt.Errorf("close: %w", err)
	}
	rd, err := r.open(wr.id(), plain.digest, false)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	n, sum, err := rd.batch(0, 60, 1<<20)
	if err := check("batch of 60", wr.id(), 0, 59, size, n, sum, err); err != nil {
		return err
	}
	n, sum, err = rd.batch(90, 50, 1<<20)
	if err := check("batch over the end", wr.id(), 90, 99, size, n, sum, err); err != nil {
		return err
	}
	return rd.forget()
}

// large writes entries of 1 MiB and of nothing.
func large(_ *fleet, w, r client) error {
	if err := whole(w, r, plain, 4, 1<<20); err != nil {
		return fmt.Errorf("1 MiB: %w", err)
	}
	if err := whole(w, r, plain, 7, 0); err != nil {
		return fmt.Errorf("0 to 4 bytes: %w", err)
	}
	return nil
}

// force writes with deferred sync: the LAC moves only with a force.
func force(_ *fleet, w, r client) error {
	s := plain
	s.deferred = true
	wr, err := w.create(s)
	if err != nil {
		return err
	}
	_, lac, err := wr.append(10, size)
	if err != nil {
		return fmt.Errorf("append: %w", err)
	}
	if lac != -1 {
		return fmt.Errorf("the LAC is %d before the first force", lac)
	}
	if lac, err = wr.force(); err != nil || lac != 9 {
		return fmt.Errorf("force: LAC %d: %w", lac, err)
	}
	if err := wr.close(); err != nil {
		return fmt.Errorf("close: %w", err)
	}
	return sealed(r, wr.id(), s.digest, false, 9, size)
}

func remove(_ *fleet, w, r client) error {
	wr, err := written(w, plain, 5, size)
	if err != nil {
		return err
	}
	if err := wr.close(); err != nil {
		return fmt.Errorf("close: %w", err)
	}
	if err := r.remove(wr.id()); err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	for _, c := range []client{w, r} {
		if _, err := c.open(wr.id(), plain.digest, false); !errors.Is(err, errNoLedger) {
			return fmt.Errorf("%s: opening a deleted ledger gives %v", c.name(), err)
		}
	}
	return nil
}

// victim returns a bookie of ours that stores the ledger.
func victim(f *fleet, ledger int64) (*member, error) {
	ctx, cancel := within()
	defer cancel()
	m, err := f.client.Metadata(ctx, idOf(ledger))
	if err != nil {
		return nil, err
	}
	last := m.Fragments[len(m.Fragments)-1].Bookies
	for _, b := range last {
		if x := f.of(string(b)); x != nil && x.kind == ours {
			return x, nil
		}
	}
	return nil, fmt.Errorf("%w: no bookie of ours in %v", errUnsupported, last)
}

// ensembleChange kills a bookie of ours under a writer. The writer goes on on another, of whatever kind, and nothing is lost.
func ensembleChange(f *fleet, w, r client) error {
	wr, err := written(w, plain, 20, size)
	if err != nil {
		return err
	}
	v, err := victim(f, wr.id())
	if err != nil {
		return err
	}
	v.kill()
	defer func() { v.start(); f.ready() }()
	if _, _, err := wr.append(20, size); err != nil {
		return fmt.Errorf("append without %s: %w", v.id, err)
	}
	// Two of three answer at once. Apache's client changes the ensemble with the first add after it has given the third up.
	last := int64(0)
	changed := func() (int64, error) {
		if last, _, err = wr.append(1, size); err != nil {
			return 0, fmt.Errorf("append: %w", err)
		}
		ctx, cancel := within()
		defer cancel()
		m, err := f.client.Metadata(ctx, idOf(wr.id()))
		if err != nil || slices.Contains(m.Fragments[len(m.Fragments)-1].Bookies, bookieOf(v.id)) {
			return 0, err
		}
		return 1, nil
	}
	if _, err := await(1, changed, patience); err != nil {
		return fmt.Errorf("ensemble change: %w", err)
	}
	if last, _, err = wr.append(20, size); err != nil {
		return fmt.Errorf("append to the new ensemble: %w", err)
	}
	if err := wr.close(); err != nil {
		return fmt.Errorf("close: %w", err)
	}
	return sealed(r, wr.id(), plain.digest, false, last, size)
}

// recoverOneDown kills a bookie of ours, then recovers without it.
func recoverOneDown(f *fleet, w, r client) error {
	wr, err := written(w, plain, 20, size)
	if err != nil {
		return err
	}
	v, err := victim(f, wr.id())
	if err != nil {
		return err
	}
	v.kill()
	defer func() { v.start(); f.ready() }()
	if err := sealed(r, wr.id(), plain.digest, true, 19, size); err != nil {
		return err
	}
	if _, _, err := wr.append(3, size); !errors.Is(err, errFenced) {
		return fmt.Errorf("the old writer's add was answered with %v instead of fenced", err)
	}
	return sealed(w, wr.id(), plain.digest, false, 19, size)
}
