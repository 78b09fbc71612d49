//go:build interop

package interop

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestFleetMoves (e): a fleet of Apache's bookies becomes one of ours, one bookie at a time, and Apache's again, while both
// clients write. Nothing that was acknowledged is lost, and no ledger names a bookie that has gone.
func TestFleetMoves(t *testing.T) {
	if testing.Short() {
		t.Skip("takes minutes: runs in make interop, which is without -short")
	}
	onEachSide(t, fleetMoves, "metadata-store-zk") // that is the first ZooKeeper under another name
}

func fleetMoves(t *testing.T, at metadataStore, name, version string) {
	f := startFleet(t, at, "moves-"+name, version, version, version, version)
	j := startJava(t, version)
	java, own := clients(t, f, []*javaProgram{j})
	loads := []*load{begin(own), begin(java[0], java[1])}
	defer func() {
		for _, l := range loads {
			l.end()
		}
	}()

	begun := time.Now()
	took := func() time.Duration {
		defer func() { begun = time.Now() }()
		return time.Since(begun).Round(time.Second)
	}
	for i, old := range slices.Clone(f.bookies) {
		f.add(ours)
		f.ready()
		old.terminate()
		f.gone(t, old)
		f.forget(old)
		if i == 1 { // Apache's way; our auditor and workers do what it asks for
			out, err := shell(t, version, f.uri, "decommissionbookie", "-bookieid", old.id)
			require.NoError(t, err, "%s", out)
		} else {
			f.bindery(t, "node", "decommission", old.id)
		}
		wrote(t, loads)
		t.Logf("%s has taken the place of Apache's %s after %v", f.bookies[len(f.bookies)-1].id, old.id, took())
	}
	require.False(t, f.apache())
	t.Logf("%d ledgers are whole after %v", verify(t, loads, own, java[0], java[1]), took())

	for _, old := range slices.Clone(f.bookies) {
		f.add(version)
		f.ready()
		runOurs(t, "node", "readonly", "on", "--server", old.http)
		f.bindery(t, "node", "drain", old.id)
		old.terminate()
		f.gone(t, old)
		f.forget(old)
		f.bindery(t, "node", "decommission", old.id)
		wrote(t, loads)
		t.Logf("Apache's %s has taken the place of %s after %v", f.bookies[len(f.bookies)-1].id, old.id, took())
	}
	for _, l := range loads {
		l.end()
		require.NoError(t, l.err)
	}
	n := verify(t, loads, own, java[0], java[1])
	t.Logf("%d ledgers are whole", n)
	left := map[string]bool{}
	for _, m := range f.bookies {
		left[m.id] = true
	}
	for _, l := range loads {
		for _, w := range l.written {
			m, err := f.client.Metadata(t.Context(), idOf(w.id))
			require.NoError(t, err)
			for _, fragment := range m.Fragments {
				for _, b := range fragment.Bookies {
					require.True(t, left[string(b)], "ledger %d is on %s, which has gone", w.id, b)
				}
			}
		}
	}
}

// story is one ledger of a load.
type story struct {
	id    int64
	acked int64 // last entry known to be acknowledged
	whole bool  // closed by its writer, at acked
}

// load writes ledgers until it is ended: one for as long as it lasts, the others short.
type load struct {
	stop chan struct{}
	done chan struct{}
	once sync.Once
	err  error // once done

	mu      sync.Mutex
	written []*story // those that are closed, or were closed by others
}

// begin starts a load. Each short ledger is written by the next client.
func begin(cs ...client) *load {
	l := &load{stop: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(l.done)
		l.err = l.run(cs)
	}()
	return l
}

func (l *load) end() {
	l.once.Do(func() { close(l.stop) })
	<-l.done
}

// count returns how many ledgers are finished.
func (l *load) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.written)
}

func (l *load) run(cs []client) error {
	long, err := l.open(cs[0])
	if err != nil {
		return err
	}
	for i := 0; ; i++ {
		short, err := l.open(cs[i%len(cs)])
		if err != nil {
			return err
		}
		for range 4 {
			if err := errors.Join(short.append(20), long.append(2)); err != nil {
				return err
			}
			select {
			case <-l.stop:
			case <-time.After(250 * time.Millisecond):
			}
		}
		if err := l.finish(short); err != nil {
			return err
		}
		select {
		case <-l.stop:
			return l.finish(long)
		default:
		}
	}
}

// chapter is a ledger that is being written.
type chapter struct {
	story
	w      writer
	as     string
	fenced bool // somebody has closed it: re-replication does that when a writer is slow to leave a bookie
}

func (l *load) open(c client) (*chapter, error) {
	w, err := c.create(plain)
	if err != nil {
		return nil, fmt.Errorf("%s: create: %w", c.name(), err)
	}
	return &chapter{story: story{id: w.id(), acked: -1}, w: w, as: c.name()}, nil
}

func (c *chapter) append(n int) error {
	if c.fenced {
		return nil
	}
	last, _, err := c.w.append(n, size)
	switch {
	case errors.Is(err, errFenced):
		c.fenced = true
	case err != nil:
		return fmt.Errorf("%s: append to ledger %d after entry %d: %w", c.as, c.id, c.acked, err)
	default:
		c.acked = last
	}
	return nil
}

func (l *load) finish(c *chapter) error {
	err := c.w.close()
	if err != nil && !c.fenced && !errors.Is(err, errFenced) {
		return fmt.Errorf("%s: close ledger %d: %w", c.as, c.id, err)
	}
	c.whole = err == nil && !c.fenced
	l.mu.Lock()
	defer l.mu.Unlock()
	l.written = append(l.written, &c.story)
	return nil
}

// wrote waits until each load has finished two more ledgers: what was changed before does not hinder it.
func wrote(t *testing.T, loads []*load) {
	t.Helper()
	for _, l := range loads {
		want := l.count() + 2
		_, err := await(int64(want), func() (int64, error) {
			select {
			case <-l.done:
				return 0, fmt.Errorf("the load has ended: %w", l.err)
			default:
				return int64(l.count()), nil
			}
		}, 2*time.Minute)
		require.NoError(t, err)
	}
}

// verify reads every finished ledger with each client in turn, and returns how many there are.
func verify(t *testing.T, loads []*load, cs ...client) (n int) {
	t.Helper()
	for _, l := range loads {
		l.mu.Lock()
		all := append([]*story(nil), l.written...)
		l.mu.Unlock()
		for _, s := range all {
			c := cs[n%len(cs)]
			n++
			if !s.whole {
				settle(t, c, s)
			}
			require.NoError(t, sealed(c, s.id, plain.digest, false, s.acked, size), "%s reads ledger %d", c.name(), s.id)
		}
	}
	return n
}

// settle sees where a ledger ends that its writer did not close: not before what was acknowledged.
func settle(t *testing.T, c client, s *story) {
	t.Helper()
	r, err := c.open(s.id, plain.digest, true)
	require.NoError(t, err)
	last, _, closed, err := r.info()
	require.NoError(t, err)
	require.True(t, closed)
	require.GreaterOrEqual(t, last, s.acked, "acknowledged entries of ledger %d are lost", s.id)
	require.NoError(t, r.forget())
	t.Logf("ledger %d was closed by re-replication at %d; acknowledged were %d", s.id, last, s.acked)
	s.acked, s.whole = last, true
}
