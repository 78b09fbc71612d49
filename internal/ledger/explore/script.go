package explore

import (
	"fmt"
	"slices"
	"strings"
)

// Script prints a history as a scenario: the world, its set-up and the moves, one command a line.
func Script(spec *Spec, history []string) string {
	var s strings.Builder
	fmt.Fprintf(&s, "# world %s: %s\n", spec.Name, spec.About)
	names := ""
	for i := range spec.Bookies {
		names += fmt.Sprintf(" %c", 'A'+i)
	}
	fmt.Fprintf(&s, "> bookies%s\n", names)
	if spec.Split {
		s.WriteString("> split\n")
	}
	q := spec.Quorum
	create := "create"
	if spec.Deferred {
		create = "deferred"
	}
	fmt.Fprintf(&s, "> %s W %d %d %d%s\n", create, q.Ensemble, q.Write, q.Ack, names[:2*q.Ensemble])
	for _, l := range spec.Setup {
		fmt.Fprintf(&s, "> %s\n", l)
	}
	if spec.NoWriter {
		s.WriteString("> crash W\n")
	}
	for _, l := range contract(history) {
		fmt.Fprintf(&s, "> %s\n", l)
	}
	return s.String()
}

// contract writes two moves as one where scenarios have a command for both.
func contract(history []string) []string {
	var out []string
	for i := 0; i < len(history); i++ {
		line := history[i]
		if i+1 < len(history) {
			f := strings.Fields(line)
			for _, short := range []string{"meta " + f[len(f)-1] + " ok", "meta " + f[len(f)-1] + " unknown-applied", "wipe " + f[len(f)-1], "lose " + f[len(f)-1]} {
				if both, _ := expand(short); both[0] == line && both[1] == history[i+1] {
					line = short
					i++
					break
				}
			}
		}
		out = append(out, line)
	}
	return out
}

// tidy moves the store's decisions next to their answers where the violation stays, so that more of the history can be
// written with the commands of the scenario tests.
func (x *space) tidy(b *Broken) {
	for i := 0; i < len(b.History); i++ {
		who, ok := strings.CutPrefix(b.History[i], "store ")
		if !ok {
			continue
		}
		for k := i + 2; k < len(b.History); k++ {
			if b.History[k] != "told "+who {
				continue
			}
			h := slices.Concat(b.History[:i], b.History[i+1:k], []string{b.History[i]}, b.History[k:])
			if why := x.violates(h); why != "" {
				b.History, b.Invariant = h, why
			}
			break
		}
	}
}

// violates plays a history and returns the invariant that its end violates.
func (x *space) violates(history []string) string {
	s := x.start
	for i, l := range history {
		next, why, err := x.byText(&s, l)
		if err != nil {
			return ""
		}
		if why == "" {
			why = x.check(&next)
		}
		s = next
		if why != "" {
			if i == len(history)-1 {
				return why
			}
			return ""
		}
	}
	return ""
}

// Replay plays a script that Script printed, on the cores without any memory of steps, and returns it with what happened.
// broken is the invariant that is violated at its end, if any.
func Replay(text string) (out, broken string, err error) {
	defer catch(&err)
	lines := strings.Split(strings.TrimSpace(text), "\n")
	name, _, _ := strings.Cut(strings.TrimPrefix(lines[0], "# world "), ":")
	spec, ok := World(name)
	if !ok {
		return "", "", fmt.Errorf("the first line must be \"# world NAME\"; there is no world %q", name)
	}
	spec.exact = true
	x, err := newSpace(&spec)
	if err != nil {
		return "", "", err
	}
	var b strings.Builder
	head := strings.Count(Script(&spec, nil), "\n")
	s := x.start
	x.settle(&s)
	for i, line := range lines {
		command, ok := strings.CutPrefix(line, "> ")
		if !ok && i > 0 {
			continue
		}
		fmt.Fprintln(&b, line)
		if i < head || !ok {
			continue
		}
		next, why, err := x.byText(&s, command)
		if err != nil {
			return b.String(), "", err
		}
		x.explain(&b, &s, &next)
		s = next
		if why == "" {
			why = x.check(&s)
		}
		if why != "" {
			fmt.Fprintf(&b, "  VIOLATED %s\n", why)
			return b.String(), why, nil
		}
	}
	quiet := true
	for _, m := range x.moves(&s, nil) {
		quiet = quiet && m.kind > lastFree
	}
	if quiet {
		if broken = x.checkQuiet(&s); broken != "" {
			fmt.Fprintf(&b, "  VIOLATED %s\n", broken)
		}
	}
	return b.String(), broken, nil
}

// explain prints what a move changed.
func (x *space) explain(b *strings.Builder, was, is *state) {
	if was.record != is.record {
		fmt.Fprintf(b, "  record v%d: %s\n", is.version, describe(*x.records.at(is.record)))
	}
	if was.promised != is.promised {
		for e := range entryMax {
			if (is.promised&^was.promised)>>e&1 != 0 {
				fmt.Fprintf(b, "  e%d is acknowledged\n", e)
			}
		}
	}
	for i := range x.spec.Bookies {
		o, n := *x.bookies.at(was.bookies[i]), *x.bookies.at(is.bookies[i])
		if o.text() != n.text() {
			fmt.Fprintf(b, "  %s: %s\n", x.names[i], n.text())
		}
	}
	for i := range x.spec.clients() {
		o, n := *x.clients.at(was.clients[i]), *x.clients.at(is.clients[i])
		if n.status == statusDone && o.status != statusDone {
			fmt.Fprintf(b, "  %s is done\n", x.clientName(i))
		}
		if n.want.kind == wantWrite && (o.want.kind != wantWrite || o.want.record != n.want.record) {
			fmt.Fprintf(b, "  %s writes %s at v%d\n", x.clientName(i), describe(*x.records.at(n.want.record)), n.want.version)
		}
	}
}

// text says what a bookie holds and how it feels; what is not durable stands in brackets.
func (b *bookie) text() string {
	var s strings.Builder
	mark := func(name string, mem, disk bool) {
		switch {
		case mem && disk:
			s.WriteString(" " + name)
		case mem:
			s.WriteString(" [" + name + "]")
		}
	}
	mark("fenced", b.mem.Fenced, b.disk.Fenced)
	mark("limbo", b.mem.Limbo, b.disk.Limbo)
	mark("tombstone", b.mem.Tombstone, b.disk.Tombstone)
	mark("deferred", b.mem.Deferred, b.disk.Deferred)
	mark("force-lost", b.mem.ForceLost, b.disk.ForceLost)
	mark("starting", b.starting, true)
	for e := range b.have {
		mark(fmt.Sprintf("e%d(lac %d)", e, b.have[e].lac), b.have[e].ok, b.synced[e].ok)
	}
	if s.Len() == 0 {
		return "empty"
	}
	return strings.TrimSpace(s.String())
}
