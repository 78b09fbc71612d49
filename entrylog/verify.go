package entrylog

import (
	"context"
	"errors"

	"github.com/binderylog/bindery/internal/corrupt"
)

// Verified is what Verify read.
type Verified struct {
	Entries     int64
	Bytes       int64 // of entries with their record headers
	Checkpoints int
	Ledgers     int
	States      int
	Source      Source
	Sealed      bool
}

// Finding is one thing that is wrong with a log.
type Finding struct {
	Log           LogID
	Ledger, Entry int64 // -1: not an entry, or not known which
	Err           *corrupt.Error
}

// Verify reads a log from front to back, checks every record, and compares the tables with what it read. Each thing wrong goes
// to fn; the error returned is about reading. The log being written is verified up to its last checkpoint.
func (s *Store) Verify(ctx context.Context, id LogID, fn func(Finding)) (Verified, error) {
	v, err := s.pin(id)
	if err != nil {
		return Verified{}, s.finding(id, err, fn)
	}
	defer s.release(v)
	var res Verified
	d, err := discover(v.f, v.l.path, id)
	if err != nil {
		return res, err
	}
	if d.header != nil {
		if err := s.finding(id, d.header, fn); err != nil {
			return res, err
		}
	}
	if t := v.l.trailer; t != nil {
		if err := s.finding(id, (&Footer{store: s}).readFooter(v, t), fn); err != nil {
			return res, err
		}
		res.Checkpoints = int(t.checkpoints)
	}
	f, err := s.finalOrDurable(id)
	if err != nil {
		return res, s.finding(id, err, fn)
	}
	for _, d := range f.Damage {
		fn(Finding{Log: id, Ledger: -1, Entry: -1, Err: d.Err})
	}
	res.Source, res.Sealed, res.Ledgers, res.States = f.Source, f.Info.Sealed, len(f.Ledgers), len(f.States)
	return res, s.compareEntries(ctx, id, v.l.path, f, &res, fn)
}

// compareEntries reads all records and compares them with the run table, without holding either in memory: each entry adds
// a number to a sum on its side.
func (s *Store) compareEntries(ctx context.Context, id LogID, path string, f *Footer, res *Verified, fn func(Finding)) error {
	var table, read uint64
	for r, err := range f.Runs() {
		if err != nil {
			return s.finding(id, err, fn)
		}
		for i := range int(r.Count) {
			table += mix(r.Ledger, r.First+int64(i), r.Location(i))
		}
	}
	damaged := false
	err := s.Scan(ctx, id, func(r Record, err error) error {
		var c *corrupt.Error
		if errors.As(err, &c) {
			damaged = true
			fn(Finding{Log: id, Ledger: r.Ledger, Entry: r.Entry, Err: c})
			return nil
		}
		res.Entries++
		res.Bytes += RecordHeaderSize + int64(len(r.Body))
		read += mix(r.Ledger, r.Entry, r.Location)
		return err
	})
	if err == nil && !damaged && len(f.Damage) == 0 && table != read {
		fn(Finding{Log: id, Ledger: -1, Entry: -1, Err: corrupt.Errorf(path, 0, "run table", "it does not describe the %d entries of the log", res.Entries)})
	}
	return err
}

// finding passes damage to fn and returns any other error.
func (s *Store) finding(id LogID, err error, fn func(Finding)) error {
	var c *corrupt.Error
	if errors.As(err, &c) {
		fn(Finding{Log: id, Ledger: -1, Entry: -1, Err: c})
		return nil
	}
	return err
}

// mix makes one number of an entry and its place.
func mix(ledger, entry int64, loc Location) uint64 {
	h := uint64(ledger)*0x9E3779B97F4A7C15 ^ uint64(entry)
	h = (h ^ h>>31) * 0xBF58476D1CE4E5B9
	h ^= uint64(loc.Offset)<<24 ^ uint64(loc.Size)
	h = (h ^ h>>27) * 0x94D049BB133111EB
	return h ^ h>>31
}
