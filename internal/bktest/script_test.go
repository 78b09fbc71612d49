package bktest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/autorecovery"
	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/internal/metadata/memmeta"
	"github.com/binderylog/bindery/ledgerclient"
)

// TestScripts plays the scenarios of auto-recovery, one a file in testdata, with whole bookies and nodes of auto-recovery in
// virtual time. Every line is a step or an expectation; the checker watches all of it.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/R*.txt")
	require.NoError(t, err)
	require.Len(t, files, 18)
	for _, name := range files {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(name)
			require.NoError(t, err)
			synctest.Test(t, func(t *testing.T) {
				s := &stage{t: t, ledgers: map[string]*scripted{}, nodes: map[string]*loner{}, cookies: map[string][]byte{}}
				defer s.end()
				for i, line := range strings.Split(string(text), "\n") {
					if line, _, _ = strings.Cut(line, "#"); strings.TrimSpace(line) == "" {
						continue
					}
					s.line = fmt.Sprintf("%s:%d: %s", filepath.Base(name), i+1, strings.TrimSpace(line))
					s.do(strings.Fields(line))
				}
			})
		})
	}
}

// stage is one script under way.
type stage struct {
	t       *testing.T
	line    string
	c       *Cluster
	v       *metadata.Views
	client  *ledgerclient.Client
	ledgers map[string]*scripted
	nodes   map[string]*loner
	cookies map[string][]byte
}

// scripted is a ledger of a script.
type scripted struct {
	id ledgerclient.LedgerID
	w  *ledgerclient.Writer
	n  int64 // entries
}

func (s *stage) fail(format string, args ...any) {
	s.t.Helper()
	s.t.Fatalf("%s: %s", s.line, fmt.Sprintf(format, args...))
}

func (s *stage) must(err error) {
	s.t.Helper()
	if err != nil {
		s.fail("%v", err)
	}
}

func (s *stage) duration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	s.must(err)
	return d
}

func (s *stage) number(text string) int {
	n, err := strconv.Atoi(text)
	s.must(err)
	return n
}

func (s *stage) ctx() context.Context { return s.t.Context() }

// within waits until ok.
func (s *stage) within(d time.Duration, ok func() string) {
	s.t.Helper()
	for end := time.Now().Add(d); ; time.Sleep(20 * time.Millisecond) {
		wrong := ok()
		if wrong == "" {
			return
		}
		if time.Now().After(end) {
			s.fail("%s", wrong)
		}
	}
}

// do plays one line.
func (s *stage) do(f []string) {
	verbs := map[string]func(f []string){
		"bookies": s.bookies, "add": s.add, "healer": s.healer, "ledger": s.ledger, "append": s.append, "close": s.close, "delete": s.delete,
		"down": s.down, "up": s.up, "wipe": s.wipe, "readonly": s.readonly, "wait": func(f []string) { time.Sleep(s.duration(f[0])) },
		"mark": s.mark, "marked": s.marked, "unmarked": s.unmarked, "never": s.never, "open": s.state, "closed": s.state, "names": s.names,
		"without": s.names, "whole": s.whole, "delay": s.delay, "switch": s.flip, "decommission": s.decommission, "auditor": s.auditor, "expire": s.expire,
		"die": s.die, "hold": s.hold, "cookie": s.cookie, "collected": s.collected, "lists": s.lists, "elsewhere": s.elsewhere, "fragments": s.fragments,
		"audits": s.audits,
	}
	fn := verbs[f[0]]
	if fn == nil {
		s.fail("unknown")
	}
	if f[0] == "closed" || f[0] == "without" || f[0] == "open" || f[0] == "names" {
		fn(f)
		return
	}
	fn(f[1:])
}

// bookies N DELAY GRACE RATE: the cluster.
func (s *stage) bookies(f []string) {
	h := NewHistory()
	delay := s.duration(f[1])
	if delay == 0 {
		delay = -1
	}
	cfg := Config{Bookies: s.number(f[0]), Latency: time.Millisecond, Dirs: [2]int{1, 1},
		Healers: Healers{Delay: delay, Grace: s.duration(f[2]), Rate: int64(s.number(f[3])), Still: true}}
	s.c = &Cluster{cfg: cfg, ctx: s.t.Context(), h: h, check: NewChecker(h), tree: memmeta.NewTree(), level: slog.LevelInfo, rng: rand.New(rand.NewPCG(1, 1)),
		ops: &opLog{}, books: &shelf{}}
	s.c.net = NewNet(1, cfg.Latency, s.c.check)
	s.c.tree.OnWrite(s.c.check.Wrote)
	s.must(s.c.boot())
	store := s.c.tree.Open()
	s.v = metadata.NewViews(store, metadata.DefaultRoot)
	var err error
	s.client, err = ledgerclient.Attach(store, s.v, s.c.patience("app"), s.c.net.Join("app").Dial)
	s.must(err)
}

func (s *stage) end() {
	if s.c == nil {
		return
	}
	_ = s.client.Close()
	for _, l := range s.nodes {
		l.stop()
	}
	for _, m := range s.c.members {
		m.stop()
	}
	if broken := s.c.h.Broken(); len(broken) > 0 || s.t.Failed() {
		_, _ = s.c.h.WriteTo(s.t.Output())
		if len(broken) > 0 {
			s.t.Error(broken)
		}
	}
}

// add: one more bookie.
func (s *stage) add([]string) {
	m := newMember(s.c, fmt.Sprintf("bk%d", len(s.c.members)))
	s.c.members = append(s.c.members, m)
	s.must(m.start())
}

// healer NAME: a process with auto-recovery.
func (s *stage) healer(f []string) {
	l := &loner{c: s.c, name: f[0]}
	l.start()
	s.nodes[f[0]] = l
}

func (s *stage) member(name string) *member {
	i := slices.IndexFunc(s.c.members, func(m *member) bool { return m.name == name })
	if i < 0 {
		s.fail("no bookie %s", name)
	}
	return s.c.members[i]
}

func (s *stage) get(name string) *scripted {
	l := s.ledgers[name]
	if l == nil {
		s.fail("no ledger %s", name)
	}
	return l
}

func (s *stage) record(l *scripted) *ledger.Metadata {
	m, _, err := s.v.Ledgers.Read(s.ctx(), l.id)
	s.must(err)
	return m
}

// ledger NAME E/Qw/Qa BOOKIES N: an open ledger that names all of BOOKIES, with N entries.
func (s *stage) ledger(f []string) {
	var q ledger.Quorum
	_, err := fmt.Sscanf(f[1], "%d/%d/%d", &q.Ensemble, &q.Write, &q.Ack)
	s.must(err)
	for range 300 {
		w, err := s.client.Create(s.ctx(), ledgerclient.CreateOptions{Quorum: q, Digest: ledger.DigestCRC32C, Password: password})
		s.must(err)
		l := &scripted{id: w.ID(), w: w}
		m := s.record(l)
		if !slices.ContainsFunc(strings.Split(f[2], ","), func(b string) bool { return !m.Names(ledger.BookieID(b)) }) {
			s.ledgers[f[0]] = l
			s.append([]string{f[0], f[3]})
			return
		}
		s.must(w.Close(s.ctx()))
		s.must(s.client.Delete(s.ctx(), w.ID()))
	}
	s.fail("no such ensemble comes up")
}

// appendOne waits for one append. Append itself takes its channels from a pool, which bubbles must not share.
func (s *stage) appendOne(l *scripted) (ledgerclient.EntryID, error) {
	type result struct {
		id  ledgerclient.EntryID
		err error
	}
	done := make(chan result, 1)
	l.w.AppendAsync(payload(l.id, l.n), func(id ledgerclient.EntryID, err error) { done <- result{id, err} })
	r := <-done
	return r.id, r.err
}

// append NAME N, or: append NAME fenced.
func (s *stage) append(f []string) {
	l := s.get(f[0])
	if f[1] == "fenced" {
		if _, err := s.appendOne(l); !errors.Is(err, ledgerclient.ErrFenced) {
			s.fail("the writer is told %v", err)
		}
		return
	}
	for range s.number(f[1]) {
		id, err := s.appendOne(l)
		s.must(err)
		s.c.check.Acked("app", int64(l.id), int64(id))
		l.n++
	}
}

func (s *stage) close(f []string)  { s.must(s.get(f[0]).w.Close(s.ctx())) }
func (s *stage) delete(f []string) { s.must(s.client.Delete(s.ctx(), s.get(f[0]).id)) }

// down BOOKIE ...: power cuts, at once.
func (s *stage) down(f []string) {
	for _, name := range f {
		s.member(name).kill(1, 0, false)
	}
}

// up BOOKIE [refused]
func (s *stage) up(f []string) {
	err := s.member(f[0]).start()
	if refused := len(f) > 1; refused != (err != nil) {
		s.fail("start: %v", err)
	}
}

func (s *stage) wipe(f []string) { s.must(s.member(f[0]).wipe()) }

func (s *stage) readonly(f []string) { s.member(f[0]).setReadOnly(f[1] == "on") }

func bookieIDs(text string) []ledger.BookieID {
	var out []ledger.BookieID
	for b := range strings.SplitSeq(text, ",") {
		out = append(out, ledger.BookieID(b))
	}
	return out
}

// mark NAME BOOKIES
func (s *stage) mark(f []string) {
	_, err := s.v.Replication.Mark(s.ctx(), s.get(f[0]).id, bookieIDs(f[1]), time.Now())
	s.must(err)
}

// marked NAME BOOKIES within D: exactly these.
func (s *stage) marked(f []string) {
	want := bookieIDs(f[1])
	s.within(s.duration(f[3]), func() string {
		m, err := s.v.Replication.Get(s.ctx(), s.get(f[0]).id)
		slices.Sort(m.Replicas)
		if err != nil || !slices.Equal(m.Replicas, want) {
			return fmt.Sprintf("marked with %v: %v", m.Replicas, err)
		}
		return ""
	})
}

func (s *stage) work() string {
	for m, err := range s.v.Replication.All(s.ctx(), -1) {
		s.must(err)
		return fmt.Sprintf("ledger %d is marked with %v", m.Ledger, m.Replicas)
	}
	held, err := s.v.Replication.Locked(s.ctx())
	s.must(err)
	if len(held) > 0 {
		return fmt.Sprintf("locked: %v", held)
	}
	return ""
}

// unmarked within D: no marks, no locks.
func (s *stage) unmarked(f []string) { s.within(s.duration(f[1]), s.work) }

// never marked for D
func (s *stage) never(f []string) {
	for end := time.Now().Add(s.duration(f[2])); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		for m, err := range s.v.Replication.All(s.ctx(), -1) {
			s.must(err)
			s.fail("ledger %d is marked with %v", m.Ledger, m.Replicas)
		}
	}
}

// open NAME, closed NAME
func (s *stage) state(f []string) {
	if m := s.record(s.get(f[1])); (m.State == ledger.StateClosed) != (f[0] == "closed") {
		s.fail("it is %s", describe(m))
	}
}

// names NAME BOOKIE, without NAME BOOKIE
func (s *stage) names(f []string) {
	if m := s.record(s.get(f[1])); m.Names(ledger.BookieID(f[2])) != (f[0] == "names") {
		s.fail("it is %s", describe(m))
	}
}

// fragments NAME N
func (s *stage) fragments(f []string) {
	s.within(10*time.Second, func() string {
		if m := s.record(s.get(f[0])); len(m.Fragments) != s.number(f[1]) {
			return describe(m)
		}
		return ""
	})
}

// whole NAME: it is closed behind its last acknowledged entry or later, and every copy is there with its content.
func (s *stage) whole(f []string) {
	l := s.get(f[0])
	m := s.record(l)
	if m.State != ledger.StateClosed || int64(m.LastEntry) != l.n-1 {
		s.fail("it is %s, %d entries were written", describe(m), l.n)
	}
	s.c.wholeLedger(s.client, metadata.Record{ID: l.id, Metadata: m})
	r, err := s.client.Open(s.ctx(), l.id, ledgerclient.OpenOptions{Password: password})
	s.must(err)
	next := int64(0)
	for e, err := range r.Entries(s.ctx(), 0, m.LastEntry) {
		s.must(err)
		require.Equal(s.t, len(payload(l.id, next)), len(e.Data))
		next++
	}
	require.Equal(s.t, l.n, next)
	s.must(r.Close())
}

// delay D: as `bindery recovery delay` writes it.
func (s *stage) delay(f []string) {
	s.must(s.v.Replication.SetDelay(s.ctx(), s.duration(f[0]), false))
}

// switch on, switch off
func (s *stage) flip(f []string) { s.must(s.v.Replication.SetEnabled(s.ctx(), f[0] == "on")) }

// decommission BOOKIE ok, or off: refused since re-replication is.
func (s *stage) decommission(f []string) {
	err := autorecovery.Empty(s.ctx(), autorecovery.EmptyOptions{Views: s.v, Bookie: ledger.BookieID(f[0]), Poll: time.Second})
	if f[1] == "off" {
		if !errors.Is(err, autorecovery.ErrDisabled) {
			s.fail("%v", err)
		}
		return
	}
	s.must(err)
	_, v, err := s.v.Cookies.Get(s.ctx(), ledger.BookieID(f[0]))
	s.must(err)
	s.must(s.v.Cookies.Delete(s.ctx(), ledger.BookieID(f[0]), v))
}

func (s *stage) node(name string) *loner {
	l := s.nodes[name]
	if l == nil {
		s.fail("no node %s", name)
	}
	return l
}

// auditor NAME within D: it is elected, knows it, and is the only one; the store names it.
func (s *stage) auditor(f []string) {
	s.within(s.duration(f[2]), func() string {
		for name, l := range s.nodes {
			if l.heal.service.Status().Auditor != (name == f[0]) {
				return fmt.Sprintf("%s is auditor: %v", name, name != f[0])
			}
		}
		if name, err := s.v.Election.Current(s.ctx()); name != f[0] {
			return fmt.Sprintf("the store names %q: %v", name, err)
		}
		return ""
	})
}

// audits NAME N: so many looks for the ledgers of lost bookies have there been.
func (s *stage) audits(f []string) {
	var b strings.Builder
	s.node(f[0]).heal.service.WritePrometheus(&b)
	if want := "bindery_auditor_audits_total " + f[1] + "\n"; !strings.Contains(b.String(), want) {
		_, rest, _ := strings.Cut(b.String(), "bindery_auditor_audits_total ")
		n, _, _ := strings.Cut(rest, "\n")
		s.fail("%s", n)
	}
}

func (s *stage) expire(f []string) { s.node(f[0]).store.ExpireSession() }

// die NAME: the process is gone for good, without a word.
func (s *stage) die(f []string) {
	l := s.node(f[0])
	l.host.Kill(true)
	l.store.SetFaults(func(memmeta.Op) memmeta.Fault { return memmeta.Fault{Err: errDead} })
	l.stop()
	delete(s.nodes, f[0])
}

// hold NODE LEDGER: the node's writes of the record fail. It waits until there was one.
func (s *stage) hold(f []string) {
	key, tried := s.v.Ledgers.Key(s.get(f[1]).id), make(chan struct{}, 1)
	s.node(f[0]).store.SetFaults(func(op memmeta.Op) memmeta.Fault {
		if op.Name == "txn" && slices.Contains(op.Keys, key) {
			poke(tried)
			return memmeta.Fault{Err: errDead}
		}
		return memmeta.Fault{}
	})
	select {
	case <-tried:
	case <-time.After(time.Minute):
		s.fail("nothing was published")
	}
}

// cookie BOOKIE remove, cookie BOOKIE restore
func (s *stage) cookie(f []string) {
	id := ledger.BookieID(f[0])
	if f[1] == "restore" {
		_, err := s.v.Cookies.Put(s.ctx(), id, s.cookies[f[0]], metadata.Absent)
		s.must(err)
		return
	}
	text, v, err := s.v.Cookies.Get(s.ctx(), id)
	s.must(err)
	s.cookies[f[0]] = text
	s.must(s.v.Cookies.Delete(s.ctx(), id, v))
}

// collected NAME within D: only bookies that the record names, if there is one, have anything of the ledger.
func (s *stage) collected(f []string) {
	l := s.get(f[0])
	s.within(s.duration(f[2]), func() string {
		m, _, err := s.v.Ledgers.Read(s.ctx(), l.id)
		if err != nil && !errors.Is(err, metadata.ErrNoLedger) {
			return err.Error()
		}
		for _, x := range s.c.members {
			if !x.up || m != nil && m.Names(ledger.BookieID(x.name)) {
				continue
			}
			copies, err := s.client.Copies(l.id, &ledger.Metadata{Digest: ledger.DigestCRC32C, HasPassword: true, Password: password})
			s.must(err)
			if _, answer, err := copies.List(s.ctx(), ledger.BookieID(x.name)); answer != ledger.AnswerNegative {
				return fmt.Sprintf("%s still has it: %v", x.name, err)
			}
		}
		return ""
	})
}

// lists BOOKIE fail: every other page of a listing that it asks the store for is refused; lists BOOKIE work.
func (s *stage) lists(f []string) {
	n := 0
	s.member(f[0]).store.SetFaults(func(op memmeta.Op) memmeta.Fault {
		if n++; f[1] == "fail" && n%2 == 0 && (op.Name == "list" || op.Name == "keys") {
			return memmeta.Fault{Err: errDead}
		}
		return memmeta.Fault{}
	})
}

// elsewhere BOOKIE on: from its next start on it looks for its cluster under another root, where there is an empty one.
func (s *stage) elsewhere(f []string) {
	m := s.member(f[0])
	if m.root = metadata.DefaultRoot; f[1] == "on" {
		m.root = "/elsewhere"
		if _, err := metadata.NewCluster(s.v.Store, m.root).Init(s.ctx()); err != nil && !errors.Is(err, metadata.ErrInitialized) {
			s.must(err)
		}
	}
}
