package entrylog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/binderylog/bindery/internal/corrupt"
	"github.com/binderylog/bindery/internal/vfs"
)

// discovery is what the file of a log says about itself, found by reading as little as possible: its header, and the last
// block that ends in a trailer or a commit.
type discovery struct {
	path    string
	id      LogID // from the name
	size    int64
	meta    meta
	known   bool  // meta was read, from the header or from what ends a block
	header  error // why the header could not be read
	trailer *trailer
	last    *commit // without a trailer: the last commit in the file, or nil
	zero    bool    // no byte that findEnd looked at differs from zero
	failed  error   // an I/O error: what is missing above may well be there
}

// discover reads header and end of a log. Its error is ErrVersion only; everything else is noted in the result.
func discover(f vfs.File, path string, id LogID) (*discovery, error) {
	d := &discovery{path: path, id: id, zero: true}
	var err error
	if d.size, err = f.Size(); err != nil {
		d.failed = err
		return d, nil
	}
	buf, head, err := readAligned(f, nil, 0, headerSize)
	if err != nil {
		d.failed, d.header = err, err
	} else {
		m, err := decodeHeader(head)
		switch {
		case errors.Is(err, ErrVersion):
			return nil, fmt.Errorf("entry log %s: %w", path, err)
		case err == nil && m.id != id:
			err = fmt.Errorf("file is log %s", m.id)
		}
		if err != nil {
			d.header = corrupt.New(path, 0, "entry log header", err)
		} else {
			d.meta, d.known = m, true
		}
	}
	if err := d.findEnd(f, buf, d.size); err != nil {
		if errors.Is(err, ErrVersion) {
			return nil, fmt.Errorf("entry log %s: %w", path, err)
		}
		d.failed = errors.Join(d.failed, err)
	}
	return d, nil
}

// findEnd looks backward from a block boundary for a block that ends in a trailer or commit of this log. Preallocated space
// behind the data reads as zeros, a torn tail as anything; neither passes the checksums.
func (d *discovery) findEnd(f vfs.File, buf []byte, size int64) error {
	step := int64(blockSize) // what is looked for usually lies in the first block looked at
	for end := alignDown(size); end > headerSize; step = walkWindow {
		start := max(end-step, headerSize)
		var data []byte
		var err error
		if buf, data, err = readAligned(f, buf, start, int(end-start)); err != nil {
			return err
		}
		for n := len(data) / blockSize; n > 0; n-- {
			block := data[(n-1)*blockSize : n*blockSize]
			found, err := d.ending(block, start+int64(n)*blockSize)
			if found || err != nil {
				return err
			}
		}
		end = start
	}
	return nil
}

// ending looks at the block that ends at end. A version newer than ours is the only error.
func (d *discovery) ending(block []byte, end int64) (bool, error) {
	if b := block[blockSize-commitSize:]; string(b[RecordHeaderSize:RecordHeaderSize+8]) == commitMagic {
		d.zero = false
		c, err := decodeCommit(b, end-commitSize)
		if err == nil && d.accept(&c.meta) {
			d.last = c
			return true, nil
		}
		if errors.Is(err, ErrVersion) {
			return false, err
		}
	}
	if b := block[blockSize-trailerSize:]; string(b[RecordHeaderSize:RecordHeaderSize+8]) == trailerMagic {
		d.zero = false
		t, err := decodeTrailer(b, end-trailerSize)
		if err == nil && d.accept(&t.meta) {
			d.trailer = t
			return true, nil
		}
		if errors.Is(err, ErrVersion) {
			return false, err
		}
	}
	if d.zero && !isZero(block) {
		d.zero = false
	}
	return false, nil
}

// accept takes what a commit or trailer says about the log, unless it belongs to another one.
func (d *discovery) accept(m *meta) bool {
	if m.id != d.id || d.known && m.salt != d.meta.salt {
		return false
	}
	d.meta, d.known = *m, true
	return true
}

func isZero(b []byte) bool {
	for len(b) >= 8 {
		if binary.LittleEndian.Uint64(b) != 0 {
			return false
		}
		b = b[8:]
	}
	return bytes.Count(b, []byte{0}) == len(b)
}

// content is what an unsealed log holds.
type content struct {
	commits []*commit // oldest first
	runs    []Run     // in order of checkpoints
	states  []LedgerState
	damage  []Damage
	end     int64 // behind the last valid record
	// The tail: valid records behind the last commit. Their writer never learned that they were durable, but they are
	// what it was given, so they are as true as those before.
	tailRuns   []Run
	tailStates []LedgerState
	tailEnd    int64 // behind the tail's last entry
	// irregular says that a commit is damaged: the log can be read, but not be continued.
	irregular bool
}

// contentReader reads an unsealed log without its entries, except where their tables are damaged.
type contentReader struct {
	w      walker
	d      *discovery
	synced int64 // what lies before is known to have been synced
	exact  bool  // and what lies behind need not be there
	c      content
	states map[int64][]byte
	// tailLimit ends the tail: the end of the file, or of the entries of a checkpoint that is none.
	tailLimit int64
}

// readContent returns what an unsealed log holds, given how far it is known to have been synced; exact says that nothing
// behind that was ever promised to be there. Its error is an I/O error.
func readContent(f vfs.File, d *discovery, synced int64, exact bool) (*content, error) {
	r := &contentReader{d: d, synced: synced, exact: exact, states: map[int64][]byte{}, tailLimit: d.size}
	r.w = walker{path: d.path, f: f, m: d.meta, limit: d.size, step: walkWindow}
	if d.last != nil {
		r.synced = max(r.synced, d.last.start) // see commit
	}
	if err := r.chain(); err != nil {
		return nil, err
	}
	if err := r.tail(); err != nil {
		return nil, err
	}
	for ledger, data := range r.states {
		r.c.states = append(r.c.states, LedgerState{Ledger: ledger, Data: data})
	}
	sortStates(r.c.states)
	return &r.c, nil
}

// chain finds all commits from the last one back, then reads what they cover from the first one on.
func (r *contentReader) chain() error {
	var commits []*commit
	for c := r.d.last; c != nil; {
		commits = append(commits, c)
		if c.prev == 0 {
			break
		}
		// Usually the preceding commit ends where this checkpoint starts. If it is damaged, look for the one before.
		back := discovery{path: r.d.path, id: r.d.id, meta: r.d.meta, known: true}
		if err := back.findEnd(r.w.f, nil, c.start); err != nil {
			return err
		}
		c = back.last
	}
	slices.Reverse(commits)
	if n := len(commits); n > 0 && commits[n-1].end() > r.synced {
		whole, err := r.provisional(commits[n-1])
		if err != nil {
			return err
		}
		if !whole {
			commits = commits[:n-1]
		}
	}
	at := int64(headerSize)
	for _, c := range commits {
		if at < c.start {
			if err := r.gap(at, c.start); err != nil {
				return err
			}
		}
		if err := r.checkpoint(c); err != nil {
			return err
		}
		at = c.end()
	}
	r.c.commits, r.c.end = commits, at
	return nil
}

// provisional looks at the last commit, of which it is not known that it was synced. If what it covers is not whole, its sync
// never returned, and it is no checkpoint: what can be read of it is tail. Entries count for this only if the caller knows
// where the last checkpoint ended. Otherwise a damaged one may well have been promised, and believing the tables keeps it an
// error instead of an absence.
func (r *contentReader) provisional(c *commit) (whole bool, err error) {
	whole = true
	r.w.limit, r.w.step = c.off, walkWindow
	for _, err := range chunkRuns(&r.w, c.tables, c.statesAt, uint64(c.runs)) {
		if err != nil && !corrupt.Is(err) {
			return false, err
		}
		whole = whole && err == nil
	}
	states, err := chunkStates(&r.w, c.statesAt, c.off, uint64(c.states))
	if err != nil && !corrupt.Is(err) {
		return false, err
	}
	whole = whole && err == nil
	if whole && r.exact {
		_, stop, err := scanRuns(&r.w, c.start, c.tables)
		if err != nil {
			return false, err
		}
		whole = stop == c.tables
	}
	if !whole {
		r.c.tailStates = states
		r.tailLimit = c.tables
	}
	return whole, nil
}

// checkpoint takes the runs and states of an intact commit.
func (r *contentReader) checkpoint(c *commit) error {
	for run, err := range checkpointRuns(&r.w, c, func(d Damage) { r.c.damage = append(r.c.damage, d) }) {
		if err != nil {
			return err
		}
		r.c.runs = append(r.c.runs, run)
	}
	r.w.limit, r.w.step = c.off, walkWindow
	states, err := chunkStates(&r.w, c.statesAt, c.off, uint64(c.states))
	r.takeStates(states)
	var damage *corrupt.Error
	switch {
	case errors.As(err, &damage):
		r.c.damage = append(r.c.damage, Damage{Log: r.d.id, Length: c.off - c.statesAt, States: true, Err: damage})
	case err != nil:
		return err
	}
	return nil
}

func (r *contentReader) takeStates(states []LedgerState) {
	for _, s := range states {
		r.states[s.Ledger] = s.Data
	}
}

// gap reads the records between two intact commits whose own commits are damaged. All of it was synced.
func (r *contentReader) gap(start, end int64) error {
	r.c.irregular = true
	r.w.limit, r.w.step = end, walkWindow
	walked, err := r.records(start, end)
	if err != nil {
		return err
	}
	r.c.runs = append(r.c.runs, walked.runs...)
	r.takeStates(walked.states)
	if walked.stop < end {
		r.c.damage = append(r.c.damage, r.unknown(walked.stop, end))
	}
	return nil
}

// tail reads the records behind the last intact commit.
func (r *contentReader) tail() error {
	r.w.limit, r.w.step = r.tailLimit, walkWindow
	start := r.c.end
	walked, err := r.records(start, r.synced)
	if err != nil {
		return err
	}
	r.c.irregular = r.c.irregular || walked.passed
	r.c.tailStates = append(r.c.tailStates, walked.states...)
	r.c.tailRuns, r.c.tailEnd, r.c.end = walked.runs, walked.entriesEnd, walked.stop
	r.c.runs = append(r.c.runs, walked.runs...)
	r.takeStates(r.c.tailStates)
	if walked.stop < r.synced {
		r.c.damage = append(r.c.damage, r.unknown(walked.stop, r.synced))
	}
	return nil
}

// unknown is the damage of a stretch that does not parse and that no table describes.
func (r *contentReader) unknown(from, to int64) Damage {
	return Damage{Log: r.d.id, Length: to - from, Runs: true, States: true,
		Err: corrupt.Errorf(r.d.path, from, "entry log record", "%d bytes that were synced can not be read", to-from)}
}

// walkedRecords is what a plain walk over records found.
type walkedRecords struct {
	runs       []Run
	states     []LedgerState
	stop       int64 // where the walk ended
	entriesEnd int64 // behind the last entry of the first stretch of entries
	passed     bool  // the walk went on behind a damaged commit
}

// records walks from start until something does not parse. A damaged commit is passed by, if what lies behind it parses
// or is `through`, the end of what must parse.
func (r *contentReader) records(start, through int64) (w walkedRecords, err error) {
	var b RunBuilder
	w.entriesEnd = start
	entriesOnly := true
	at := start
	for at < r.w.limit {
		kind, body, next, err := r.w.at(at)
		if corrupt.Is(err) {
			pass, err := r.commitLikeAt(at, through)
			if err != nil {
				return w, err
			}
			if !pass {
				break
			}
			at, w.passed, entriesOnly = at+commitSize, true, false
			continue
		}
		if err != nil {
			return w, err
		}
		switch kind {
		case kindEntry:
			ledger, entry := IDs(body)
			b.Add(ledger, entry, Location{Log: r.w.m.id, Offset: at, Size: uint32(len(body))})
			if entriesOnly {
				w.entriesEnd = next
			}
		case kindStates:
			entriesOnly = false
			if w.states, err = decodeStates(w.states, body); err != nil { // written so: the checksum holds
				r.c.damage = append(r.c.damage, Damage{Log: r.d.id, Length: next - at, States: true, Err: corrupt.New(r.w.path, at, "ledger states", err)})
			}
		default:
			entriesOnly = false
		}
		at = next
	}
	w.runs, w.stop = b.Runs(), at
	return w, nil
}

// commitLikeAt reports whether the damaged record at off is a commit: it would end a block, and what comes next parses.
func (r *contentReader) commitLikeAt(off, through int64) (bool, error) {
	end := off + commitSize
	switch {
	case end%blockSize != 0 || end > through:
		return false, nil
	case end == through:
		return true, nil
	}
	_, _, _, err := r.w.at(end)
	if err != nil && !corrupt.Is(err) {
		return false, err
	}
	return err == nil, nil
}

func sortStates(s []LedgerState) {
	slices.SortFunc(s, func(a, b LedgerState) int {
		switch {
		case a.Ledger < b.Ledger:
			return -1
		case a.Ledger > b.Ledger:
			return 1
		}
		return 0
	})
}
