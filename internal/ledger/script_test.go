package ledger

import (
	"flag"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var update = flag.Bool("update", false, "write the transcripts in testdata anew; review them as a diff")

// TestScenarios plays the transcripts in testdata. A line that starts with '>' is a command, what follows it is what the
// world said; comments and blank lines are kept. A scenario's name is that of the protocol description.
//
//	bookies A B C...            create W E Qw Qa A B C   (deferred W ... for deferred sync, delayed W ... for late changes)
//	append W [n]                close W | force W | retry W | lactick W
//	recover R [readahead]       crash CLIENT             the client is gone
//	acceptloss R                a recovery that may lose what was acknowledged
//	flight                      what is under way
//	do PATTERN...               requests arrive and their replies too
//	deliver|reply PATTERN...    requests, or replies, arrive
//	drop|timeout PATTERN...     lost without, or with, the client noticing;   readonly PATTERN: refused by a read-only bookie
//	run                         everything under way arrives until nothing is
//	meta CLIENT ok|unknown|unknown-applied|unknown-dropped|unknown-late;   land;   metatimeout CLIENT
//	store CLIENT                the store decides, the answer is on its way;   told CLIENT: it arrives (meta CLIENT lost: never)
//	pick CLIENT B1 B2...        - for none
//	split                       from here on a bookie's state is durable only after: sync BOOKIE
//	erase BOOKIE, start BOOKIE  the halves of a wipe
//	powercut|wipe|down|up|lose|incarnation BOOKIE;   forget BOOKIE ENTRY
//	kill BOOKIE                 its process; what was written and not synced is in the pages of its machine still
//	replicate P FRAGMENT INDEX BOOKIE;   unlock: its lock is gone, it does not know;   mark, risk, final: what an auditor sees
//	look BOOKIE [listing-fails|listing-short|read-fails];   collect BOOKIE: the two halves of a collection
//	delete                      the record;   retire BOOKIE: collects its copy
//	show                        record, clients, bookies
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, f := range files {
		t.Run(strings.TrimSuffix(filepath.Base(f), ".txt"), func(t *testing.T) {
			have, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			want, broken := play(string(have))
			if len(broken) > 0 {
				t.Errorf("invariants: %v", broken)
			}
			if *update {
				if err := os.WriteFile(f, []byte(want), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if want != string(have) {
				t.Errorf("%s: got\n%s\nwant\n%s", f, want, have)
			}
		})
	}
}

// play runs the commands of a transcript and returns it with the present output.
func play(text string) (string, []string) {
	var out strings.Builder
	w := newWorld()
	for _, line := range strings.Split(strings.TrimRight(text, "\n"), "\n") {
		switch {
		case strings.HasPrefix(line, "> "):
			fmt.Fprintln(&out, line)
			w.log = nil
			w.command(strings.Fields(line[2:]))
			w.check()
			for _, l := range w.log {
				fmt.Fprintln(&out, "  "+l)
			}
		case strings.HasPrefix(line, "  "): // output, made anew
		default:
			fmt.Fprintln(&out, line)
		}
	}
	return out.String(), w.broken
}

func (w *world) command(f []string) {
	if len(f) > 1 {
		if c := w.client(f[1]); c != nil {
			w.clientCommand(c, f)
			return
		}
	}
	if w.replicationCommand(f) {
		return
	}
	switch f[0] {
	case "bookies":
		*w = *newWorld(f[1:]...)
	case "create", "deferred", "delayed":
		n := func(i int) int { v, _ := strconv.Atoi(f[i]); return v }
		var ens []BookieID
		for _, b := range f[5:] {
			ens = append(ens, BookieID(b))
		}
		w.createWith(f[1], Quorum{n(2), n(3), n(4)}, WriterConfig{Deferred: f[0] == "deferred", Delay: f[0] == "delayed"}, ens...)
	case "recover":
		ahead := 1
		if len(f) > 2 {
			ahead, _ = strconv.Atoi(f[2])
		}
		w.recover(f[1], ahead)
	case "acceptloss":
		w.lossy = true
		w.recoverWith(f[1], RecoveryConfig{AcceptLoss: true, LossNote: "by hand"})
	case "do", "deliver", "reply", "drop", "timeout", "readonly":
		w.flightCommand(f)
	case "flight":
		for _, m := range w.messages {
			w.say("%s", m.name())
		}
	case "run":
		w.run()
	case "land":
		for _, op := range w.late {
			if !w.apply(op) {
				w.say("%s's write at v%d comes too late", op.client.name, op.act.Version)
			}
		}
		w.late = nil
	case "split":
		w.split = true
	case "delete":
		w.gone = true
	case "show":
		w.show()
	default:
		w.bookieCommand(f)
	}
}

func (w *world) clientCommand(c *simClient, f []string) {
	switch f[0] {
	case "append":
		n := 1
		if len(f) > 2 {
			n, _ = strconv.Atoi(f[2])
		}
		for range n {
			w.appendEntry(c)
		}
	case "close":
		w.step(c, Event{Kind: EvClose})
	case "force":
		w.step(c, Event{Kind: EvForce})
	case "retry":
		w.step(c, Event{Kind: EvRetry})
	case "lactick":
		w.step(c, Event{Kind: EvLACTick})
	case "crash":
		c.dead = true
	case "metatimeout":
		for _, op := range slices.Clone(w.wants) {
			if op.client == c {
				w.forgetWant(op)
			}
		}
		w.step(c, Event{Kind: EvMetaTimeout})
	case "pick":
		var names []BookieID
		for _, b := range f[2:] {
			if b == "-" {
				b = ""
			}
			names = append(names, BookieID(b))
		}
		w.pickFor(c, names)
	case "store", "told":
		for _, op := range w.wants {
			if op.client == c {
				w.halfMeta(op, f[0] == "told")
				return
			}
		}
		w.say("%s waits for nothing", c.name)
	case "land":
		w.landOf(c)
	case "meta":
		for _, op := range w.wants {
			if op.client == c {
				w.meta(op, f[2])
				return
			}
		}
		w.say("%s waits for nothing", c.name)
	default:
		w.say("unknown command %v", f)
	}
}

// flightCommand applies to the messages that a pattern matches at this moment.
func (w *world) flightCommand(f []string) {
	pattern := strings.Join(f[1:], " ")
	hit := false
	for _, m := range slices.Clone(w.messages) {
		if ok, err := path.Match(strings.ReplaceAll(pattern, "/", ""), m.name()); err != nil || !ok {
			continue
		}
		hit = true
		switch f[0] {
		case "do":
			before := slices.Clone(w.messages)
			w.deliver(m)
			for _, r := range slices.Clone(w.messages) {
				if r.reply && !slices.Contains(before, r) {
					w.deliver(r)
				}
			}
		case "deliver", "reply":
			w.deliver(m)
		case "drop":
			w.drop(m)
		case "timeout":
			w.timeout(m)
		case "readonly":
			w.refuse(m)
		}
	}
	if !hit {
		w.say("nothing matches %q", pattern)
	}
}

// run lets everything arrive, metadata operations succeed, and picks take the first bookie outside the ensemble.
func (w *world) run() {
	for range 10000 {
		switch {
		case len(w.messages) > 0:
			w.deliver(w.messages[0])
		case len(w.wants) > 0:
			w.meta(w.wants[0], "ok")
		default:
			return
		}
		for _, b := range w.bookies {
			if w.split && b.unsynced() {
				w.syncBookie(b)
			}
		}
	}
	w.say("no end")
}

func (w *world) bookieCommand(f []string) {
	b := (*simBookie)(nil)
	if len(f) > 1 {
		b = w.bookie(BookieID(f[1]))
	}
	if b == nil {
		w.say("unknown command %v", f)
		return
	}
	switch f[0] {
	case "sync":
		w.syncBookie(b)
	case "powercut":
		w.crash(b)
	case "wipe":
		w.wipe(b)
	case "erase": // the first half of a wipe: the bookie does not serve yet
		w.wipe(b)
		b.mem, b.disk, b.down = Replica{}, Replica{}, true
	case "start": // the second: it has listed the ledgers
		w.start(b)
	case "lose": // the journal is lost: entries stay, nothing is vouched for
		b.lossEpoch++
		w.noLoss = false
		b.mem.Lose()
		b.sync()
	case "down":
		b.down = true
	case "up":
		b.down = false
		w.newConn(b)
	case "incarnation":
		w.inc[b.id]++
	case "forget":
		e, _ := strconv.Atoi(f[2])
		delete(b.entries, EntryID(e))
		delete(b.synced, EntryID(e))
	case "retire":
		if b.mem.Delete(b.mem.Generation) {
			b.entries, b.synced = map[EntryID]simEntry{}, map[EntryID]simEntry{}
			b.sync()
		}
	case "closedlimbo": // the proof of decision 17 was made
		b.mem.EndLimbo()
		b.sync()
	default:
		w.say("unknown command %v", f)
	}
}

func (w *world) show() {
	if w.gone {
		w.say("record: deleted")
	} else {
		w.say("record v%d: %s", w.version, describe(w.record))
	}
	for _, c := range w.clients {
		switch {
		case c.dead:
			w.say("%s: dead", c.name)
		case c.w != nil:
			w.say("%s: lac e%d, %d pending, ensemble %v, changing %v, %v", c.name, c.w.LastAddConfirmed(), c.w.Pending(), c.w.Ensemble(), c.w.Changing(), c.w.Cause())
		}
	}
	for _, b := range w.bookies {
		var es []EntryID
		for e := range b.entries {
			es = append(es, e)
		}
		slices.Sort(es)
		var s strings.Builder
		for _, e := range es {
			fmt.Fprintf(&s, " e%d(lac %d)", e, b.entries[e].lac)
		}
		w.say("%s:%s%s", b.id, flags(&b.mem), s.String())
	}
}

func flags(r *Replica) string {
	s := ""
	for _, f := range []struct {
		on   bool
		name string
	}{{r.Fenced, " fenced"}, {r.Limbo, " limbo"}, {r.Tombstone, " tombstone"}, {r.Deferred, " deferred"}, {r.ForceLost, " force-lost"}} {
		if f.on {
			s += f.name
		}
	}
	return s
}
