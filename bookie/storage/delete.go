package storage

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"path/filepath"
	"slices"

	"github.com/binderylog/bindery/entrylog"
	"github.com/binderylog/bindery/internal/intent"
	"github.com/binderylog/bindery/internal/invariant"
	"github.com/binderylog/bindery/internal/vfs"
)

// Local deletion of ledgers.
//
// A deletion must survive everything: entries that lie in logs until those are collected, in the journal until it is
// trimmed, in an index that is rebuilt from logs. And a deleted ledger may come back, by a recovery add or a fence, or
// because its id is used again. So a deletion runs like this, one batch of a directory at a time:
//
//  1. an intent is written;
//  2. no flush being under way, each ledger's lock is taken, its generation tested (decision 40), its replica becomes a
//     tombstone and its entries are cut out of the write caches;
//  3. a checkpoint makes the tombstones durable as ledger states: from here on the ledgers are deleted, whatever crashes;
//  4. other directories that hold something of them forget it (a directory that failed, and came back);
//  5. the file of deleted ledgers takes them in;
//  6. the index forgets them, and the intent is done. Not before: when the log of the tombstones has been ingested already (the
//     deletion was cut off, and is finished later), the index has the only record of them.
//
// A ledger that comes back begins another life: it gets a birth number higher than any before; its floor is the highest
// log id that exists, and its entries go to higher logs; its state remembers where the journals were. Whatever lies in a
// log up to the floor, or in a journal before that position, is of an earlier life and does not exist.
// The file of deleted ledgers says which of them are dead: see births.go.

// bornNow returns where the journals are: what is appended from now on lies there or behind. During replay it returns
// nothing, and replay sets it from what the journal says.
func (s *Storage) bornNow() []bornMark {
	mark := s.takeMark()
	born := make([]bornMark, 0, len(mark))
	for i, pos := range mark {
		born = append(born, bornMark{journalHash(s.o.Journals[i]), pos})
	}
	return born
}

func journalHash(id string) uint32 { return crc32.Checksum([]byte(id), castagnoli) }

// Delete deletes ledgers locally, each only if its generation is still the one given (nothing came since the caller
// looked), and returns how many it deleted. It is for the garbage collector, which has the proofs.
func (s *Storage) Delete(ctx context.Context, ids []int64, generations []uint32) (deleted int, err error) {
	s.deleteMu.Lock() // one at a time: a deletion reaches into other directories
	defer s.deleteMu.Unlock()
	if len(ids) != len(generations) {
		return 0, fmt.Errorf("%d ledgers with %d generations", len(ids), len(generations))
	}
	batches := make([]deletion, len(s.dirs))
	for i, id := range ids {
		l, lerr := s.Ledger(id, false)
		if lerr != nil {
			if !errors.Is(lerr, ErrNoLedger) {
				err = errors.Join(err, lerr)
			}
			continue
		}
		b := &batches[l.d.index]
		b.ledgers = append(b.ledgers, l) // pinned until the batch is done
		b.generations = append(b.generations, generations[i])
	}
	for i := range batches {
		b := &batches[i]
		for len(b.ledgers) > 0 {
			n := min(len(b.ledgers), deleteBatchMax)
			if ctx.Err() == nil && !s.dirs[i].failed.Load() {
				done, derr := s.dirs[i].delete(ctx, b.ledgers[:n], b.generations[:n])
				deleted += done
				err = errors.Join(err, derr)
			}
			for _, l := range b.ledgers[:n] {
				l.Release()
			}
			b.ledgers, b.generations = b.ledgers[n:], b.generations[n:]
		}
	}
	return deleted, errors.Join(err, ctx.Err())
}

type deletion struct {
	ledgers     []*Ledger
	generations []uint32
}

// deleteBatchMax bounds an intent record.
const deleteBatchMax = 16 << 10

// delete runs one batch. indexMu keeps the index keeper and compactions away until the directory agrees with itself again.
func (d *dir) delete(ctx context.Context, ledgers []*Ledger, generations []uint32) (int, error) {
	if d.tombs.Load().set.size > tombstonesMax {
		return 0, fmt.Errorf("%s: %w", d.path, ErrTombstonesFull)
	}
	d.indexMu.Lock()
	defer d.indexMu.Unlock()
	ids := make([]int64, len(ledgers))
	for i, l := range ledgers {
		ids[i] = l.id
	}
	step, err := d.appendIntent(ctx, encodeDeleteIntent(ids))
	if err != nil {
		return 0, fmt.Errorf("delete ledgers: %w", err)
	}
	invariant.CrashPoint("gc.delete.intent")
	defer d.s.births.dying(ids)()
	gone := d.bury(ledgers, generations)
	invariant.CrashPoint("gc.delete.buried")
	// Not ctx: once buried, the ledgers are deleted here, and the rest is only tidying.
	if err := d.request().wait(context.WithoutCancel(ctx)); err != nil {
		return 0, fmt.Errorf("delete ledgers: %w", err)
	}
	invariant.CrashPoint("gc.delete.checkpointed")
	if err := d.finishDelete(gone); err != nil {
		return 0, err
	}
	d.deleted.Add(uint64(len(gone)))
	if err := d.doneIntent(context.WithoutCancel(ctx), step); err != nil {
		return len(gone), fmt.Errorf("delete ledgers: %w", err)
	}
	invariant.CrashPoint("gc.delete.done")
	return len(gone), nil
}

// bury turns ledgers whose generation is still the given one into tombstones.
func (d *dir) bury(ledgers []*Ledger, generations []uint32) []int64 {
	// No flush is under way and no compaction log is begun: what exists of the ledgers in logs is in logs known now.
	d.flushMu.Lock()
	defer d.flushMu.Unlock()
	d.holdLogs()
	var gone []int64
	for i, l := range ledgers {
		l.mu.Lock()
		if !l.Replica.Tombstone && l.Replica.Delete(generations[i]) {
			l.in = [2]cacheRef{} // a flush finds nothing of it
			l.elsewhere = 0
			l.tombstone = true
			l.StateChanged() // wakes its watches
			gone = append(gone, l.id)
		}
		l.mu.Unlock()
	}
	return gone
}

// finishDelete does what follows the checkpoint; after a crash it is done again.
func (d *dir) finishDelete(ids []int64) error {
	if len(ids) == 0 {
		return nil
	}
	for _, other := range d.s.dirs {
		if other != d && !other.failed.Load() {
			if err := other.forget(ids); err != nil {
				return err
			}
		}
	}
	invariant.CrashPoint("gc.delete.elsewhere")
	return d.bookDeleted(ids)
}

// forget removes what this directory holds of ledgers that were deleted in another one.
func (d *dir) forget(ids []int64) error {
	d.indexMu.Lock()
	defer d.indexMu.Unlock()
	var held []int64
	for _, id := range ids {
		st, ev, err := d.lookupState(id)
		if err != nil {
			return fmt.Errorf("delete ledger %d: %w", id, err)
		}
		if ev != evNone && (!st.replica.Tombstone || st.seq == seqOfSet) { // the index may not have forgotten what the file names
			held = append(held, id)
		}
	}
	if len(held) == 0 {
		return nil
	}
	return d.bookDeleted(held)
}

// bookDeleted makes index and list of deleted ledgers agree that ledgers are deleted.
func (d *dir) bookDeleted(ids []int64) error {
	if err := d.replaceTombstones(ids); err != nil {
		return err
	}
	d.gen.Add(1)
	err := d.ix.DeleteLedgers(ids)
	if vfs.IsNoSpace(err) && d.useReserve("the index") {
		err = d.ix.DeleteLedgers(ids)
	}
	if err != nil {
		return fmt.Errorf("delete ledgers from the index: %w", err)
	}
	invariant.CrashPoint("gc.delete.index")
	d.s.damaged.forget(ids)
	return nil
}

// Intents. The first byte is the kind.
const (
	intentDelete  = 1 // ids, as deltas in varints
	intentCompact = 2 // output log, then source logs
)

func encodeDeleteIntent(ids []int64) []byte {
	sorted := slices.Sorted(slices.Values(ids))
	b := append(make([]byte, 0, 1+3*len(ids)), intentDelete)
	b = binary.AppendUvarint(b, uint64(len(sorted)))
	prev := int64(0)
	for _, id := range sorted {
		b = binary.AppendUvarint(b, uint64(id-prev))
		prev = id
	}
	return b
}

func encodeCompactIntent(output entrylog.LogID, sources []entrylog.LogID) []byte {
	b := binary.AppendUvarint([]byte{intentCompact}, uint64(output))
	b = binary.AppendUvarint(b, uint64(len(sources)))
	for _, id := range sources {
		b = binary.AppendUvarint(b, uint64(id))
	}
	return b
}

// intentRecord is a decoded intent.
type intentRecord struct {
	kind    byte
	ledgers []int64
	output  entrylog.LogID
	sources []entrylog.LogID
}

func decodeIntent(b []byte) (r intentRecord, err error) {
	if len(b) == 0 {
		return r, errors.New("intent is empty")
	}
	r.kind = b[0]
	p := parser{b: b[1:]}
	switch r.kind {
	case intentDelete:
		id := uint64(0)
		for range p.uvarint(deleteBatchMax) {
			delta := p.uvarint(1<<63 - 1)
			if id+delta > 1<<63-1 {
				p.fail("ledger id overflows")
			}
			if p.err != nil {
				break
			}
			id += delta
			r.ledgers = append(r.ledgers, int64(id))
		}
	case intentCompact:
		r.output = entrylog.LogID(p.uvarint(1<<32 - 1))
		for range p.uvarint(compactSourcesMax) {
			if p.err != nil {
				break
			}
			r.sources = append(r.sources, entrylog.LogID(p.uvarint(1<<32-1)))
		}
	default:
		return r, fmt.Errorf("intent of unknown kind %d", r.kind)
	}
	if p.err == nil && len(p.b) != 0 {
		p.fail("bytes follow the intent")
	}
	return r, p.err
}

// appendIntent announces a step. A log of intents that failed, for want of space or otherwise, is opened again, once, with
// the reserve given to the disk: collection must not stop on a full one.
func (d *dir) appendIntent(ctx context.Context, data []byte) (id uint64, err error) {
	err = d.withIntents(func(log intent.Log) error {
		id, err = log.Append(ctx, data)
		return err
	})
	return id, err
}

// doneIntent notes that a step is finished.
func (d *dir) doneIntent(ctx context.Context, id uint64) error {
	return d.withIntents(func(log intent.Log) error { return log.Done(ctx, id) })
}

func (d *dir) withIntents(fn func(intent.Log) error) error {
	d.intentMu.Lock()
	defer d.intentMu.Unlock()
	if d.intents != nil && d.intents.Err() == nil {
		err := fn(d.intents)
		if err == nil || d.intents.Err() == nil {
			return err
		}
	}
	if d.intents != nil {
		_ = d.intents.Close() // it has failed; what it holds is on disk
		d.intents = nil
	}
	d.useReserve("the intent log")
	log, err := d.s.o.OpenIntents(filepath.Join(d.cur, intentsName), intent.Options{Salvage: true, Logger: d.s.log})
	if err != nil {
		return fmt.Errorf("open intents: %w", err)
	}
	d.intents = log
	return fn(log)
}

// loadIntents looks at what a crash interrupted. Compactions whose output is there are finished by the index keeper, others
// are given up. Deletions are finished once replay has said which of the ledgers came back: see retryDeletions.
func (d *dir) loadIntents() error {
	for _, rec := range d.intents.Pending() {
		r, err := decodeIntent(rec.Data)
		switch {
		case err != nil:
			d.s.log.Warn("an intent of the garbage collector can not be read and is dropped", "dir", d.path, "err", err)
		case r.kind == intentDelete:
			continue
		case r.kind == intentCompact:
			if _, lerr := d.log.Log(r.output); lerr == nil {
				// The copies are whole. The index keeper puts them in the place of the sources', and removes those.
				d.compactions[r.output] = &compaction{intent: rec.ID, output: r.output, sources: r.sources}
				for _, id := range r.sources {
					d.obsolete[id] = true
				}
				continue
			}
		}
		if err := d.intents.Done(context.Background(), rec.ID); err != nil {
			return fmt.Errorf("finish intent: %w", err)
		}
	}
	return nil
}

// retryDeletions finishes deletions whose intent is pending: a crash, or a full disk, cut them off. It runs after replay;
// deleteMu is held.
func (d *dir) retryDeletions() error {
	var pending []intent.Record
	d.intentMu.Lock()
	if d.intents != nil {
		pending = d.intents.Pending()
	}
	d.intentMu.Unlock()
	pending = slices.DeleteFunc(pending, func(r intent.Record) bool { return len(r.Data) == 0 || r.Data[0] != intentDelete })
	if len(pending) == 0 {
		return nil
	}
	d.indexMu.Lock()
	defer d.indexMu.Unlock()
	for _, rec := range pending {
		r, err := decodeIntent(rec.Data)
		if err == nil {
			err = d.retryDeletion(&r)
		}
		if err == nil {
			err = d.doneIntent(d.s.ctx, rec.ID)
		}
		if err != nil {
			return fmt.Errorf("finish deletions: %w", err)
		}
	}
	return nil
}

func (d *dir) retryDeletion(r *intentRecord) error {
	defer d.s.births.dying(r.ledgers)()
	if err := d.request().wait(d.s.ctx); err != nil { // what was buried, or came back, in memory only becomes durable
		return err
	}
	return d.finishDeleteIntent(r)
}

// finishDeletions finishes what a crash cut off, once replay is over. What fails is left to the next pass of the collector.
func (s *Storage) finishDeletions() {
	s.deleteMu.Lock()
	defer s.deleteMu.Unlock()
	for _, d := range s.dirs {
		if d.failed.Load() {
			continue
		}
		if err := d.retryDeletions(); err != nil && s.ctx.Err() == nil {
			s.log.Warn("deletions that were cut off could not be finished; it is tried again", "dir", d.path, "err", err)
		}
	}
}

// finishDeleteIntent finishes the deletion of those ledgers whose tombstone became durable. Those that came back
// meanwhile keep an earlier life's entries in the index, which their floor hides.
func (d *dir) finishDeleteIntent(r *intentRecord) error {
	var gone []int64
	for _, id := range r.ledgers {
		st, ev, err := d.lookupState(id)
		if err != nil {
			return fmt.Errorf("finish the deletion of ledger %d: %w", id, err)
		}
		if ev == evState && st.replica.Tombstone {
			gone = append(gone, id)
		}
	}
	return d.finishDelete(gone)
}
