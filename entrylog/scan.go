package entrylog

import (
	"cmp"
	"context"
	"slices"
	"sort"

	"github.com/binderylog/bindery/internal/corrupt"
)

// Scan calls fn for every entry of a log, in order of offset, up to the last checkpoint. A damaged record is passed as a
// *corrupt.Error, with its place in the Record as far as the log's tables know it, and the scan goes on behind it; what no
// table describes ends the scan with its error. fn's error ends it too. Bodies are valid until fn returns.
func (s *Store) Scan(ctx context.Context, id LogID, fn func(Record, error) error) error {
	v, err := s.pin(id)
	if err != nil {
		return err
	}
	defer s.release(v)
	f, err := s.openForReading(v.l)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // read only
	sc := &scanner{s: s, id: id, w: walker{path: v.l.path, f: f, m: v.meta, limit: v.end, step: walkWindow}, fn: fn}
	return sc.run(ctx)
}

// scanner is one Scan.
type scanner struct {
	s     *Store
	id    LogID
	w     walker
	fn    func(Record, error) error
	runs  []Run // by offset; read once something is damaged
	ready bool
}

func (sc *scanner) run(ctx context.Context) error {
	for at := int64(headerSize); at < sc.w.limit; {
		if err := ctx.Err(); err != nil {
			return err
		}
		kind, body, next, err := sc.w.at(at)
		switch {
		case corrupt.Is(err):
			if next, err = sc.pass(at, err); err != nil {
				return err
			}
		case err != nil:
			return err
		case kind == kindEntry:
			r := Record{Location: Location{Log: sc.id, Offset: at, Size: uint32(len(body))}, Body: body}
			r.Ledger, r.Entry = IDs(body)
			if err := sc.fn(r, nil); err != nil {
				return err
			}
		}
		at = next
	}
	return nil
}

// pass reports the damaged record at off and returns where the next record lies.
func (sc *scanner) pass(off int64, cause error) (next int64, err error) {
	if err := sc.load(); err != nil {
		return 0, err
	}
	// The run that holds off, or else the next one behind it.
	i := sort.Search(len(sc.runs), func(i int) bool { return sc.runs[i].Offset > off })
	rec := Record{Location: Location{Log: sc.id, Offset: off}, Ledger: -1, Entry: -1}
	if i > 0 {
		r := &sc.runs[i-1]
		if n, ok := r.indexAt(off); ok {
			rec.Location, rec.Ledger, rec.Entry = r.Location(n), r.Ledger, r.First+int64(n)
			return off + RecordHeaderSize + int64(rec.Location.Size), sc.fn(rec, cause)
		}
	}
	if err := sc.fn(rec, cause); err != nil {
		return 0, err
	}
	if i < len(sc.runs) {
		return sc.runs[i].Offset, nil
	}
	return sc.w.limit, nil
}

// load reads the log's runs.
func (sc *scanner) load() error {
	if sc.ready {
		return nil
	}
	f, err := sc.s.finalOrDurable(sc.id)
	if err != nil {
		return err
	}
	for r, err := range f.Runs() {
		if err != nil {
			return err
		}
		sc.runs = append(sc.runs, r)
	}
	slices.SortFunc(sc.runs, func(a, b Run) int { return cmp.Compare(a.Offset, b.Offset) })
	sc.ready = true
	return nil
}

// finalOrDurable is Footer, but for the log being written what its checkpoints hold.
func (s *Store) finalOrDurable(id LogID) (*Footer, error) {
	v, err := s.pin(id)
	if err != nil {
		return nil, err
	}
	defer s.release(v)
	s.mu.Lock()
	info := v.l.info
	s.mu.Unlock()
	if !info.Writing {
		return s.Footer(id)
	}
	f := &Footer{Info: info, store: s}
	return f, f.readCheckpoints(v, v.end, v.end)
}

// indexAt returns which entry of the run has its record header at off.
func (r *Run) indexAt(off int64) (int, bool) {
	if len(r.Sizes) == 1 {
		step := RecordHeaderSize + int64(r.Sizes[0])
		n := (off - r.Offset) / step
		return int(n), (off-r.Offset)%step == 0 && n >= 0 && n < int64(r.Count)
	}
	at := r.Offset
	for i, s := range r.Sizes {
		if at == off {
			return i, true
		}
		at += RecordHeaderSize + int64(s)
	}
	return 0, false
}
