package storage

import (
	"context"
	"runtime/pprof"
	"sync"

	"github.com/binderylog/bindery/entrylog"
)

// readAhead grows what is read at once while a ledger is read in order of entries, and reads the next piece before it is
// asked for. A stream that jumps starts small again.
type readAhead struct {
	c       *readCache
	jobs    chan *aheadJob
	stop    chan struct{}
	wg      sync.WaitGroup
	streams [streamShards]streamShard
	small   sync.Pool    // buffers of first reads
	large   pieceBuffers // of all others
}

const (
	aheadWorkers = 2
	aheadQueue   = 16
	aheadMin     = 16 << 10 // what a first, perhaps random, read takes at once
	aheadMax     = 1 << 20
	streamShards = 8
	streamSlots  = 64
)

// aheadJob is a piece to read before it is asked for.
type aheadJob struct {
	d       *dir
	ledger  int64
	log     entrylog.LogID
	off     int64
	window  int
	started bool          // guarded by the stream's shard
	done    chan struct{} // closed when a job that was started is over
}

// covers reports whether the job reads what lies at loc.
func (j *aheadJob) covers(loc entrylog.Location) bool {
	return j.log == loc.Log && j.off <= loc.Offset && loc.Offset < j.off+int64(j.window)
}

type streamShard struct {
	mu    sync.Mutex
	slots [streamSlots]stream
}

// stream is what is known of one ledger's reader.
type stream struct {
	ledger int64
	entry  int64 // asked for last
	window int   // bytes to read at once, 0: unused slot
	bound  int   // length of the ledger's last piece of log, if that ended within what was read; else 0
	log    entrylog.LogID
	next   int64 // end of what was read or asked for ahead
	job    *aheadJob
}

// follows reports whether a read of an entry goes on with the stream. Readers keep several requests in flight, and of a
// striped ledger a bookie has only some of the entries.
func (st *stream) follows(ledger, entry int64) bool {
	return st.window != 0 && st.ledger == ledger && entry > st.entry-64 && entry <= st.entry+64
}

func (a *readAhead) start(c *readCache, bytes int64) {
	a.large.init(int(min(max(bytes/8/pieceMax, 1), 4)))
	a.c, a.jobs, a.stop = c, make(chan *aheadJob, aheadQueue), make(chan struct{})
	a.small.New = func() any { return new([]byte) }
	for range aheadWorkers {
		a.wg.Go(a.worker)
	}
}

func (a *readAhead) close() error {
	close(a.stop)
	a.wg.Wait()
	return a.large.close()
}

func (a *readAhead) slot(ledger int64) (*streamShard, *stream) {
	h := cacheHash(ledger, 0)
	sh := &a.streams[h%streamShards]
	return sh, &sh.slots[h/streamShards%streamSlots]
}

// miss returns how many bytes to read for an entry that is not cached; but if they are being read ahead already, wait is
// closed when that is over. A job that has not begun is taken over.
func (a *readAhead) miss(ledger, entry int64, loc entrylog.Location) (n int, wait <-chan struct{}) {
	sh, st := a.slot(ledger)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if j := st.job; j != nil && j.ledger == ledger && j.covers(loc) {
		if j.started {
			st.entry = entry
			return 0, j.done
		}
		st.job = nil
	}
	if st.follows(ledger, entry) {
		st.window = min(2*st.window, aheadMax)
		if st.bound != 0 { // its pieces are short: other ledgers lie between them
			st.window = max(aheadMin, st.bound+st.bound/4)
		}
	} else {
		*st = stream{ledger: ledger, window: aheadMin}
	}
	st.entry = entry
	return max(st.window, entrylog.RecordHeaderSize+int(loc.Size)), nil
}

// read notes that an entry was served from the cache, and that its reader passed a trigger, if it did.
func (a *readAhead) read(d *dir, ledger, entry int64, b *block) {
	if !b.trigger.Load() || !b.trigger.CompareAndSwap(true, false) {
		sh, st := a.slot(ledger)
		sh.mu.Lock()
		if st.follows(ledger, entry) {
			st.entry = max(st.entry, entry)
		}
		sh.mu.Unlock()
		return
	}
	sh, st := a.slot(ledger)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if st.window == 0 || st.ledger != ledger || st.job != nil {
		return
	}
	st.entry = entry
	st.window = min(2*st.window, aheadMax)
	j := &aheadJob{d: d, ledger: ledger, log: st.log, off: st.next, window: st.window, done: make(chan struct{})}
	select {
	case a.jobs <- j:
		st.job = j
	default: // the workers are busy: the reader will read by itself
	}
}

// done notes that the log was read up to f.end for a ledger. If it goes on there, reaching the last block of what was read
// starts the next read.
func (a *readAhead) done(ledger int64, log entrylog.LogID, f filled) (goesOn bool) {
	sh, st := a.slot(ledger)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if st.ledger != ledger || st.window == 0 {
		return false
	}
	st.log, st.next, st.bound = log, f.end, 0
	if f.records > 0 && f.ledger != ledger {
		st.bound = int(max(f.useful, 1))
	}
	return f.records > 0 && f.ledger == ledger && st.window > aheadMin
}

// worker reads ahead.
func (a *readAhead) worker() {
	pprof.SetGoroutineLabels(pprof.WithLabels(context.Background(), pprof.Labels("bindery", "read-ahead")))
	for {
		select {
		case <-a.stop:
			return
		case j := <-a.jobs:
			a.work(j)
		}
	}
}

func (a *readAhead) work(j *aheadJob) {
	sh, st := a.slot(j.ledger)
	sh.mu.Lock()
	j.started = st.job == j
	sh.mu.Unlock()
	if !j.started { // its reader was faster, or has gone
		return
	}
	defer func() {
		sh.mu.Lock()
		if st.job == j {
			st.job = nil
		}
		sh.mu.Unlock()
		close(j.done)
	}()
	if b := a.c.peek(blockKey(j.d.index, j.log, j.off)); b != nil {
		cached := b.start <= j.off && j.off < b.end
		a.c.release(b)
		if cached { // somebody was here before
			return
		}
	}
	f, _ := a.fetch(j.d, j.ledger, j.log, j.off, j.window, 0) // the reader meets the error by itself
	j.d.prefetched.Add(1)
	j.d.aheadEntries.Add(uint64(f.records))
	j.d.aheadBytes.Add(uint64(max(f.end-j.off, 0)))
	a.arm(j.d, j.ledger, j.log, f)
}

// fetch reads a piece of a log into the cache: n bytes, and if that is more than a first read, up to the end of the bucket
// in which they end, so that buckets are cached whole. size is that of a body in it, if one is known.
func (a *readAhead) fetch(d *dir, ledger int64, log entrylog.LogID, off int64, n int, size uint32) (filled, error) {
	if n <= aheadMin {
		buf := a.small.Get().(*[]byte)
		defer a.small.Put(buf)
		chunk, err := d.log.ReadRange(log, off, n, *buf)
		if err != nil {
			return filled{}, err
		}
		*buf = chunk.Buffer
		return a.c.fill(d.index, chunk, ledger, 1<<63-1), nil
	}
	limit := (off + int64(n) + bucketSize - 1) &^ (bucketSize - 1)
	n = int(limit-off) + entrylog.RecordHeaderSize + int(max(2*size, aheadSlack)) // the last record begins before limit
	buf := a.large.take()
	defer a.large.give(buf)
	chunk, err := d.log.ReadRange(log, off, n, buf)
	if err != nil {
		return filled{}, err
	}
	return a.c.fill(d.index, chunk, ledger, limit), nil
}

// aheadSlack is read beyond a bucket's end for the sake of the record that begins in it.
const aheadSlack = 8 << 10

// arm puts the trigger for the next read on the block of the last record that was read.
func (a *readAhead) arm(d *dir, ledger int64, log entrylog.LogID, f filled) {
	if !a.done(ledger, log, f) {
		return
	}
	loc := entrylog.Location{Log: log, Offset: f.lastOff, Size: uint32(f.end - f.lastOff - entrylog.RecordHeaderSize)}
	if b := a.c.get(d.index, loc); b != nil {
		b.trigger.Store(true)
		a.c.release(b)
	}
}
