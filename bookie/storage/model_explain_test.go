package storage

import (
	"context"
	"fmt"
	"iter"

	"github.com/binderylog/bindery/bookie/index"
	"github.com/binderylog/bindery/entrylog"
)

type noteIndex struct {
	index.Index
	path string
	note func(string, ...any)
}

func (n *noteIndex) Ingest(ctx context.Context, info entrylog.LogInfo, runs iter.Seq2[entrylog.Run, error], st []entrylog.LedgerState) error {
	all := ""
	seen := func(yield func(entrylog.Run, error) bool) {
		for r, err := range runs {
			all += fmt.Sprintf(" %d:%d-%d@%d", r.Ledger, r.First, r.Last(), r.Offset)
			if !yield(r, err) {
				return
			}
		}
	}
	err := n.Index.Ingest(ctx, info, seen, st)
	n.note("%s ingest %v prec %v: %v;%s", n.path, info.ID, info.Precedence, err, all)
	return err
}

func (n *noteIndex) Drop(id entrylog.LogID) error {
	err := n.Index.Drop(id)
	n.note("%s drop %v: %v", n.path, id, err)
	return err
}

func (m *model) explain(id, entry int64) string {
	l, err := m.e.s.ledgers.get(id)
	if err != nil {
		return err.Error()
	}
	defer l.Release()
	out := fmt.Sprintf("replica %+v loaded %v unproven %v stateless %v degraded %v lost %v; ", l.Replica, l.loaded, l.unproven, l.stateless, m.e.s.degraded.Load(), m.e.s.Lost())
	out += fmt.Sprintf("home %d elsewhere %b birth %d floor %v seq %d; ", l.d.index, l.elsewhere, l.birth, l.floor, l.seq)
	for _, d := range m.e.s.dirs {
		loc, ok := d.ov.find(id, entry, 0)
		out += fmt.Sprintf("dir %d: overlay %v %v", d.index, loc, ok)
		iloc, ierr := d.ix.Locate(id, entry)
		out += fmt.Sprintf(" index %v %v", iloc, ierr)
		for _, info := range d.log.Logs() {
			ing, _ := d.ix.Ingested(info.ID)
			out += fmt.Sprintf("\n   log %v prec %v sealed %v writing %v compaction %v ingested %v", info.ID, info.Precedence, info.Sealed, info.Writing, info.Compaction, ing)
			f, err := d.log.Footer(info.ID)
			if err != nil {
				continue
			}
			for r, err := range f.Runs() {
				if err == nil && r.Ledger == id && r.First <= entry && entry <= r.Last() {
					out += fmt.Sprintf(" %v", r)
				}
			}
		}
		out += "\n"
	}
	return out
}

func (m *model) explainState(id int64) string {
	out := ""
	for _, d := range m.e.s.dirs {
		for _, p := range d.ov.load() {
			if b, ok := p.state(id); ok {
				st, err := parseState(id, b)
				out += fmt.Sprintf("dir %d overlay log %v: fenced %v seq %d birth %d %v\n", d.index, p.log, st.replica.Fenced, st.seq, st.birth, err)
			}
		}
		if b, ok, err := d.ix.State(id); ok || err != nil {
			st, perr := parseState(id, b)
			out += fmt.Sprintf("dir %d index: fenced %v seq %d birth %d %v %v\n", d.index, st.replica.Fenced, st.seq, st.birth, err, perr)
		}
		for _, info := range d.log.Logs() {
			f, err := d.log.Footer(info.ID)
			if err != nil {
				continue
			}
			for _, s := range f.States {
				if s.Ledger == id {
					st, err := parseState(id, s.Data)
					out += fmt.Sprintf("dir %d log %v prec %v: fenced %v seq %d birth %d %v\n", d.index, info.ID, info.Precedence, st.replica.Fenced, st.seq, st.birth, err)
				}
			}
		}
	}
	for _, list := range m.e.j.records {
		for _, r := range list {
			if int64(r.Tag) == id && r.Kind == KindState {
				st, err := parseState(id, r.Payload)
				out += fmt.Sprintf("journal %d pos %d: fenced %v seq %d birth %d %v\n", r.Journal, r.Position, st.replica.Fenced, st.seq, st.birth, err)
			}
		}
	}
	return out
}
