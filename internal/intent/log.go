package intent

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"github.com/binderylog/bindery/internal/vfs"
	"io"
	"maps"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"sync"

	"github.com/binderylog/bindery/internal/invariant"
)

// queueMax bounds the callers whose request waits for the owner.
const queueMax = 64

// log is a Log. Its owner goroutine alone touches the files.
type log struct {
	o         Options
	open      opener
	lock      io.Closer
	recovered Recovered

	queue  chan *request
	stop   chan struct{} // closed by Close
	done   chan struct{} // closed by the owner when it has ended
	once   sync.Once
	closed error // what Close returns; written by the owner before done is closed

	// The owner's, once it runs.
	layout     *layout
	app        appender
	generation uint64
	index      uint64 // last record written
	durable    uint64 // last record known to be synced
	size       int64  // of the file
	retryAt    int64  // size at which a failed change of generation is tried again
	nextID     uint64

	mu           sync.Mutex        // guards what follows; never held during I/O
	pending      map[uint64][]byte // written by the owner only
	pendingBytes int64
	err          error // why the log is poisoned
}

// request asks the owner for one append, or for marking intents done.
type request struct {
	ctx   context.Context
	data  []byte // of an append
	ids   []uint64
	done  bool
	id    uint64
	reply chan error
}

func (l *log) start() {
	l.queue = make(chan *request, queueMax)
	l.stop, l.done = make(chan struct{}), make(chan struct{})
	go pprof.Do(context.Background(), pprof.Labels("owner", "intent log"), func(context.Context) { l.run() })
}

func (l *log) Append(ctx context.Context, data []byte) (uint64, error) {
	if len(data) > MaxRecord {
		return 0, fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, len(data), MaxRecord)
	}
	r := &request{ctx: ctx, data: append([]byte(nil), data...)} // a caller whose ctx ends may reuse data at once
	if err := l.do(ctx, r); err != nil {
		return 0, err
	}
	return r.id, nil
}

func (l *log) Done(ctx context.Context, ids ...uint64) error {
	return l.do(ctx, &request{ctx: ctx, done: true, ids: slices.Clone(ids)})
}

func (l *log) do(ctx context.Context, r *request) error {
	if err := l.Err(); err != nil {
		return err
	}
	r.reply = make(chan error, 1) // the owner never waits for a caller
	select {
	case <-l.stop:
		return ErrClosed
	default:
	}
	select {
	case l.queue <- r:
	case <-l.stop:
		return ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-r.reply:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-l.done:
		select { // the owner may have answered on its way out
		case err := <-r.reply:
			return err
		default:
			return ErrClosed
		}
	}
}

func (l *log) Pending() []Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pendingLocked()
}

func (l *log) pendingLocked() []Record {
	records := make([]Record, 0, len(l.pending))
	for _, id := range slices.Sorted(maps.Keys(l.pending)) { // ids grow: by id is by age
		records = append(records, Record{ID: id, Data: l.pending[id]})
	}
	return records
}

func (l *log) Recovered() Recovered { return l.recovered }

func (l *log) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

func (l *log) Close() error {
	l.once.Do(func() { close(l.stop) })
	<-l.done
	return l.closed
}

// run is the owner: it takes what waits as one batch, writes it, syncs once and answers.
func (l *log) run() {
	defer close(l.done)
	l.mark()
	var batch []*request
	for {
		select {
		case r := <-l.queue:
			batch = append(batch[:0], r)
		case <-l.stop:
			l.drain()
			l.shut()
			return
		}
		for len(batch) < queueMax && len(l.queue) > 0 { // the owner alone receives, so this does not block
			batch = append(batch, <-l.queue)
		}
		l.serve(batch)
		clear(batch)
		if len(l.queue) == 0 {
			l.mark()
		}
	}
}

// drain refuses what was queued when Close came.
func (l *log) drain() {
	for len(l.queue) > 0 {
		(<-l.queue).reply <- ErrClosed
	}
}

func (l *log) shut() {
	err := l.app.close()
	if l.Err() != nil {
		err = nil // the failure was reported to whom it concerned; the file gets no second try
	}
	if lerr := l.lock.Close(); err == nil {
		err = lerr
	}
	l.closed = err
}

// serve writes one batch of requests and answers them.
func (l *log) serve(batch []*request) {
	if err := l.Err(); err != nil {
		for _, r := range batch {
			r.reply <- err
		}
		return
	}
	l.maybeRotate()
	index, size := l.index, l.size
	var records [][]byte
	taken := batch[:0:0]
	count, bytes := len(l.pending), l.pendingBytes
	for _, r := range batch {
		switch {
		case l.Err() != nil:
			r.reply <- l.Err()
		case r.ctx.Err() != nil:
			r.reply <- r.ctx.Err()
		case r.done:
			for _, id := range r.ids {
				if _, ok := l.pending[id]; ok { // only the owner writes to pending
					records = append(records, l.encode(&record{kind: kindDone, id: id}))
				}
			}
			taken = append(taken, r)
		case count >= MaxPending || bytes+int64(len(r.data)) > MaxPendingBytes:
			r.reply <- fmt.Errorf("%w: %d intents, %d bytes", ErrFull, count, bytes)
		default:
			count, bytes = count+1, bytes+int64(len(r.data))
			r.id = l.nextID
			l.nextID++
			records = append(records, l.encode(&record{kind: kindIntent, id: r.id, data: r.data}))
			taken = append(taken, r)
		}
	}
	if len(records) > 0 {
		if err := l.write(records); err != nil {
			if !l.takeBack(err, index, size) {
				err = l.poison(err)
			}
			for _, r := range taken {
				r.reply <- err
			}
			return
		}
	}
	l.commit(taken)
}

// encode gives a record its place in the file.
func (l *log) encode(r *record) []byte {
	l.index++
	r.generation, r.index, r.durable = l.generation, l.index, l.durable
	b := appendRecord(make([]byte, 0, headerSize+len(r.data)), r)
	l.size += int64(frameSize(len(r.data)))
	return b
}

// write appends records and syncs.
func (l *log) write(records [][]byte) error {
	if err := l.app.append(records); err != nil {
		return err
	}
	invariant.CrashPoint("intent.written")
	if err := l.app.sync(); err != nil {
		return fmt.Errorf("sync: %w", err)
	}
	invariant.CrashPoint("intent.synced")
	l.durable = l.index
	return nil
}

// commit makes durable requests visible and answers them.
func (l *log) commit(taken []*request) {
	l.mu.Lock()
	for _, r := range taken {
		for _, id := range r.ids {
			l.finish(id)
		}
		if !r.done {
			l.pending[r.id] = r.data
			l.pendingBytes += int64(len(r.data))
		}
	}
	l.mu.Unlock()
	for _, r := range taken {
		r.reply <- nil
	}
}

// mark writes down how far the file is synced, without syncing that. It is what lets the next Open tell the last
// acknowledged record, should it be damaged, from one that was never finished.
func (l *log) mark() {
	if l.Err() != nil || l.durable == 0 || l.durable != l.index {
		return
	}
	index, size := l.index, l.size
	if err := l.app.append([][]byte{l.encode(&record{kind: kindSynced})}); err != nil && !l.takeBack(err, index, size) {
		_ = l.poison(err)
	}
}

// takeBack makes the log usable again after a write that a full disk refused: what of it reached the file is cut off, as
// Open would, and the file opened anew. It says whether it could. Only writing may fail so: after a failed sync nothing
// of the file can be believed.
func (l *log) takeBack(err error, index uint64, size int64) bool {
	if !errors.Is(err, errWrite) || !vfs.IsNoSpace(err) {
		return false
	}
	_ = l.app.close() // it has no say any more
	err = cut(l.layout.fs, filepath.Join(l.layout.path(l.generation), fileName), size, true)
	if err == nil {
		l.index, l.size = index, size
		err = l.openAppender()
	}
	return err == nil
}

// maybeRotate starts a new generation when the file has grown and most of it is garbage.
func (l *log) maybeRotate() {
	live := l.pendingBytes + int64(len(l.pending))*headerSize
	if l.size < l.o.SegmentBytes || l.size < 2*live || l.size < l.retryAt {
		return
	}
	old := l.app
	l.generation++
	records := l.snapshot()
	size, built, err := l.layout.build(l.generation, records)
	if err != nil && !built {
		// The old file is whole and in use; only its garbage stays.
		l.generation--
		l.retryAt = l.size + l.o.SegmentBytes
		l.o.Logger.Warn("could not replace an intent log by a shorter one; going on with the old", "dir", l.layout.dir, "error", err)
		return
	}
	if err == nil {
		l.index, l.size, l.retryAt = uint64(len(records)), size, 0
		err = l.openAppender()
	}
	if err != nil {
		// Which of the two a power loss would show is not known, so neither may be written to.
		l.app = old
		_ = l.poison(fmt.Errorf("change of generation: %w", err))
		return
	}
	_ = old.close() // everything in it is in the new file
	if err := l.layout.clean(); err != nil {
		// Open removes it.
		l.o.Logger.Warn("could not remove an old intent log", "dir", l.layout.dir, "error", err)
	}
	invariant.CrashPoint("intent.generation-cleaned")
}

// poison records the first failure and returns what callers are told.
func (l *log) poison(err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.err = fmt.Errorf("%w: %w", ErrPoisoned, err)
		l.o.Logger.Error("intent log failed", "dir", l.layout.dir, "error", err)
	}
	return l.err
}

// appendLength appends the length that precedes a record in a file.
func appendLength(dst []byte, n int) []byte { return binary.AppendUvarint(dst, uint64(n)) }
