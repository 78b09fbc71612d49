package entrylog

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/binderylog/bindery/internal/invariant"
	"github.com/binderylog/bindery/internal/vfs"
)

// logWriter appends to one log. It belongs to one goroutine. After an error it only answers that error.
type logWriter struct {
	meta
	path    string
	f       vfs.File
	out     *output
	commits []*commit // checkpoints of this log, oldest first
	durable int64     // end of the last one
	entries uint64    // since then
	err     error
	count   *counters
	buffers *bufferPair            // memory of out, the owner's to give back
	head    [RecordHeaderSize]byte // of the record being added; here, since on the stack it would escape
}

// writerOptions are what a logWriter needs of Options.
type writerOptions struct {
	buffered bool
	space    reservation
	count    *counters
}

func (o writerOptions) mode() vfs.Mode { return vfs.Mode{Write: true, Direct: !o.buffered} }

// createLog makes the file of a new log with its header, both durable when it returns. On failure nothing stays behind, as
// far as the file system lets it.
func createLog(fs vfs.FS, path string, m meta, buffers *bufferPair, o writerOptions) (w *logWriter, err error) {
	defer func() {
		if err != nil {
			err = classify(fmt.Errorf("create entry log %s: %w", m.id, err))
		}
	}()
	m.created = time.Now().UnixMilli()
	var salt [8]byte
	if _, err := rand.Read(salt[:]); err != nil {
		return nil, err
	}
	m.salt = binary.LittleEndian.Uint64(salt[:])
	mode := o.mode()
	mode.Create, mode.Exclusive = true, true
	f, err := fs.Open(path, mode)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close(), fs.Remove(path))
		}
	}()
	if o.space.step > 0 {
		if err := f.Preallocate(o.space.upTo(headerSize)); err != nil && !vfs.IsNoSpace(err) {
			return nil, err
		} // a step that does not fit is tried again, smaller, by the output
	}
	head := vfs.AlignedBytes(headerSize)
	encodeHeader(head, &m)
	if _, err := f.WriteAt(head, 0); err != nil {
		return nil, err
	}
	o.count.written.Add(headerSize)
	invariant.CrashPoint("entrylog.header-written")
	if err := f.Sync(); err != nil {
		return nil, err
	}
	o.count.syncs.Add(1)
	if err := fs.SyncDir(filepath.Dir(path)); err != nil {
		return nil, err
	}
	invariant.CrashPoint("entrylog.created")
	return &logWriter{
		meta: m, path: path, f: f, durable: headerSize, count: o.count,
		out: newOutput(f, headerSize, nil, buffers, o.space, &o.count.written), buffers: buffers,
	}, nil
}

// append adds an entry record.
func (w *logWriter) append(body []byte) (Location, error) {
	if w.err != nil {
		return Location{}, w.err
	}
	if len(body) < MinBody || len(body) > MaxBody {
		return Location{}, fmt.Errorf("%w: %d bytes, allowed are %d to %d", ErrBody, len(body), MinBody, MaxBody)
	}
	loc := Location{Log: w.id, Offset: w.out.tell(), Size: uint32(len(body))}
	if err := w.record(kindEntry, body); err != nil {
		return Location{}, err
	}
	w.entries++
	return loc, nil
}

// record adds a record of any kind.
func (w *logWriter) record(kind byte, body []byte) error {
	if w.err != nil {
		return w.err
	}
	putRecordHeader(w.head[:], kind, body, w.seed(w.out.tell()))
	err := w.out.append(w.head[:])
	if err == nil {
		err = w.out.append(body)
	}
	return w.fail("write", err)
}

// fail latches the first error, in words for operators.
func (w *logWriter) fail(op string, err error) error {
	if err != nil && w.err == nil {
		w.err = classify(fmt.Errorf("%s entry log %s: %w", op, w.path, err))
		w.count.failures.Add(1)
	}
	return w.err
}

// classify marks an error as ErrNoSpace or ErrFailed.
func classify(err error) error {
	if vfs.IsNoSpace(err) {
		return fmt.Errorf("%w: %w", ErrNoSpace, err)
	}
	return fmt.Errorf("%w: %w", ErrFailed, err)
}

// pad fills up so that a record of n bytes, header included, will end a block.
func (w *logWriter) pad(n int64) error {
	gap := -(w.out.tell() + n) & (blockSize - 1)
	if gap == 0 {
		return nil
	}
	if gap < RecordHeaderSize {
		gap += blockSize
	}
	return w.record(kindPad, zeros[:gap-RecordHeaderSize])
}

var zeros [2 * blockSize]byte

// checkpoint appends run table, states and commit, and syncs once.
func (w *logWriter) checkpoint(runs []Run, states []LedgerState) error {
	if w.err != nil {
		return w.err
	}
	if w.entries == 0 && len(states) == 0 {
		if len(runs) != 0 {
			return fmt.Errorf("checkpoint of entry log %s: %d runs, but nothing was appended", w.id, len(runs))
		}
		return nil
	}
	runs, err := w.checkRuns(runs)
	if err != nil {
		return err
	}
	if states, err = checkStates(states); err != nil {
		return fmt.Errorf("checkpoint of entry log %s: %w", w.id, err)
	}
	c := &commit{meta: w.meta, seq: 1, start: w.durable, tables: w.out.tell(), entries: w.entries, runs: uint32(len(runs)), states: uint32(len(states))}
	if n := len(w.commits); n > 0 {
		c.seq, c.prev = w.commits[n-1].seq+1, w.commits[n-1].off
	}
	c.bytes = uint64(c.tables - c.start)
	t := tableWriter{kind: kindRuns, emit: w.record}
	for i := range runs {
		if err := t.run(&runs[i]); err != nil {
			return err
		}
	}
	if err := t.close(); err != nil {
		return err
	}
	c.statesAt = w.out.tell()
	t = tableWriter{kind: kindStates, emit: w.record, buf: t.buf}
	for i := range states {
		if err := t.state(&states[i]); err != nil {
			return err
		}
	}
	if err := t.close(); err != nil {
		return err
	}
	if err := w.pad(commitSize); err != nil {
		return err
	}
	c.off = w.out.tell()
	var body [commitBody]byte
	encodeCommit(body[:], c)
	if err := w.record(kindCommit, body[:]); err != nil {
		return err
	}
	invariant.Check(w.out.tell()%blockSize == 0, "checkpoint of %s ends at %d", w.path, w.out.tell())
	if err := w.fail("write", w.out.flush()); err != nil {
		return err
	}
	invariant.CrashPoint("entrylog.checkpoint-written")
	if err := w.fail("sync", w.f.Sync()); err != nil {
		return err
	}
	invariant.CrashPoint("entrylog.checkpoint-synced")
	w.count.syncs.Add(1)
	w.commits = append(w.commits, c)
	w.durable, w.entries, w.out.touched = c.end(), 0, false
	return nil
}

// checkRuns proves that the runs describe what was appended, each entry once, and puts them in order.
func (w *logWriter) checkRuns(runs []Run) ([]Run, error) {
	var entries uint64
	var size int64
	sorted := true
	for i := range runs {
		r := &runs[i]
		if err := r.Check(); err != nil {
			return nil, fmt.Errorf("checkpoint of entry log %s: %w", w.id, err)
		}
		if r.Log != w.id || r.Offset < w.durable || r.Offset+r.Bytes() > w.out.tell() {
			return nil, fmt.Errorf("checkpoint of entry log %s: run of ledger %d at %s does not lie in it", w.id, r.Ledger, r.Location(0))
		}
		entries += uint64(r.Count)
		size += r.Bytes()
		sorted = sorted && (i == 0 || compareRuns(&runs[i-1], r) <= 0)
	}
	if entries != w.entries || size != w.out.tell()-w.durable {
		return nil, fmt.Errorf("checkpoint of entry log %s: runs cover %d entries in %d bytes, appended were %d in %d", w.id, entries, size, w.entries, w.out.tell()-w.durable)
	}
	if !sorted {
		runs = slices.Clone(runs)
		slices.SortFunc(runs, func(a, b Run) int { return compareRuns(&a, &b) })
	}
	return runs, nil
}

// checkStates puts states in order of ledger.
func checkStates(states []LedgerState) ([]LedgerState, error) {
	states = slices.Clone(states)
	sortStates(states)
	for i := range states {
		s := &states[i]
		switch {
		case s.Ledger < 0:
			return nil, fmt.Errorf("state of ledger %d: negative id", s.Ledger)
		case len(s.Data) > MaxState:
			return nil, fmt.Errorf("state of ledger %d has %d bytes, at most %d are allowed", s.Ledger, len(s.Data), MaxState)
		case i > 0 && states[i-1].Ledger == s.Ledger:
			return nil, fmt.Errorf("two states of ledger %d", s.Ledger)
		}
	}
	return states, nil
}

// clean reports that everything in the file was checkpointed, so that the log can go on after nothing but dropping what is
// buffered.
func (w *logWriter) clean() bool {
	w.out.wait()
	var we *writeError
	return !w.out.touched && (w.err == nil || errors.As(w.err, &we) && we.Clean)
}

// rewind drops what is buffered. The log is clean.
func (w *logWriter) rewind(space reservation) {
	w.out.close()
	w.out = newOutput(w.f, w.durable, nil, w.buffers, space, &w.count.written)
	w.err, w.entries = nil, 0
}

// stop ends the output's goroutine; the buffers are free afterwards. The file stays open.
func (w *logWriter) stop() {
	if w.out != nil {
		w.out.close()
		w.out = nil
	}
}

// counters are shared by everything of one store that writes.
type counters struct {
	entries, entryBytes, written, checkpoints, syncs, reads, readBytes, corrupt, failures atomic.Uint64
}
