package index

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/VictoriaMetrics/metrics"

	"github.com/binderylog/bindery/internal/corrupt"
	"github.com/binderylog/bindery/internal/vfs"
)

// runIndex is the Index over any keyValue.
type runIndex struct {
	kv    keyValue
	path  string
	o     Options
	slots chan struct{} // one per look-up that may run

	use    sync.RWMutex // held for reading by every call, for writing by Close
	closed bool         // guarded by use
	failed atomic.Pointer[error]
	count  counters
}

type counters struct {
	lookups, transactions, ingestedLogs, relocated, deletedLedgers, corrupt, fullDisk atomic.Uint64
}

var _ Index = (*runIndex)(nil)

// EnsureDefaults fills in what is zero.
func (o *Options) EnsureDefaults() {
	if o.InitialMapSize == 0 {
		o.InitialMapSize = defaultMapSize()
	}
	if o.Lookups == 0 {
		o.Lookups = max(1, runtime.NumCPU()/2)
	}
	if o.Logger == nil {
		o.Logger = discardLogger
	}
}

// OpenBolt opens or creates the index kept by bbolt in the file path. It uses the operating system's files. A file that is
// damaged, as far as opening can tell, is refused with a *corrupt.Error: rebuild it.
func OpenBolt(path string, o Options) (Index, error) {
	o.EnsureDefaults()
	kv, err := openBoltStore(path, &o)
	if err != nil {
		return nil, err
	}
	return newRunIndex(kv, path, o), nil
}

// OpenMem opens or creates the index kept in memory, with a snapshot and a log of changes on fs. It behaves as OpenBolt's
// and serves where the file system is not the operating system's: in simulations and fault tests.
func OpenMem(fs vfs.FS, path string, o Options) (Index, error) {
	o.EnsureDefaults()
	kv, err := openMemStore(fs, path, &o)
	if err != nil {
		return nil, err
	}
	return newRunIndex(kv, path, o), nil
}

func newRunIndex(kv keyValue, path string, o Options) *runIndex {
	return &runIndex{kv: kv, path: path, o: o, slots: make(chan struct{}, o.Lookups)}
}

// enter begins a call; leave must follow unless it fails.
func (x *runIndex) enter() error {
	x.use.RLock()
	if x.closed {
		x.use.RUnlock()
		return ErrClosed
	}
	if err := x.Err(); err != nil {
		x.use.RUnlock()
		return err
	}
	return nil
}

// lookup runs fn in a read transaction, with at most Options.Lookups others.
func (x *runIndex) lookup(fn func(kvTx) error) error {
	if err := x.enter(); err != nil {
		return err
	}
	defer x.use.RUnlock()
	x.slots <- struct{}{}
	defer func() { <-x.slots }()
	x.count.lookups.Add(1)
	return x.judge(x.kv.view(fn))
}

// write runs fn in a write transaction.
func (x *runIndex) write(fn func(kvTx) error) error {
	if err := x.enter(); err != nil {
		return err
	}
	defer x.use.RUnlock()
	if x.o.ReadOnly {
		return errors.New("the index is open for inspection only")
	}
	x.count.transactions.Add(1)
	var inner error
	err := x.kv.update(func(tx kvTx) error {
		inner = fn(tx)
		return inner
	})
	if err != nil && inner == nil && !corrupt.Is(err) {
		// The store itself failed: whether the transaction is on disk is not known.
		if vfs.IsNoSpace(err) {
			x.count.fullDisk.Add(1)
			return fmt.Errorf("%w: %w", ErrNoSpace, err)
		}
		return x.fail(err)
	}
	return x.judge(err)
}

// judge counts damage, and fails the index for damage that the store ran into.
func (x *runIndex) judge(err error) error {
	if err == nil || !corrupt.Is(err) {
		return err
	}
	x.count.corrupt.Add(1)
	return x.fail(err)
}

// fail latches the first cause: from a damaged index no "not found" can be believed, nor can it be changed.
func (x *runIndex) fail(err error) error {
	err = fmt.Errorf("%w: %w", ErrFailed, err)
	if x.failed.CompareAndSwap(nil, &err) {
		x.o.Logger.Error("the index has failed; it is rebuilt from the entry logs", "file", x.path, "err", err)
	}
	return x.Err()
}

// Err implements Index.
func (x *runIndex) Err() error {
	if p := x.failed.Load(); p != nil {
		return *p
	}
	return nil
}

// Close implements Index.
func (x *runIndex) Close() error {
	x.use.Lock()
	defer x.use.Unlock()
	if x.closed {
		return nil
	}
	x.closed = true
	return x.kv.close()
}

// WritePrometheus implements Index.
func (x *runIndex) WritePrometheus(w io.Writer) {
	label := fmt.Sprintf("{file=%q}", x.path)
	c := &x.count
	metrics.WriteCounterUint64(w, "bindery_index_lookups_total"+label, c.lookups.Load())
	metrics.WriteCounterUint64(w, "bindery_index_transactions_total"+label, c.transactions.Load())
	metrics.WriteCounterUint64(w, "bindery_index_ingested_logs_total"+label, c.ingestedLogs.Load())
	metrics.WriteCounterUint64(w, "bindery_index_relocated_entries_total"+label, c.relocated.Load())
	metrics.WriteCounterUint64(w, "bindery_index_deleted_ledgers_total"+label, c.deletedLedgers.Load())
	metrics.WriteCounterUint64(w, "bindery_index_corrupt_total"+label, c.corrupt.Load())
	metrics.WriteCounterUint64(w, "bindery_index_full_disk_total"+label, c.fullDisk.Load())
	failed := uint64(0)
	if x.Err() != nil {
		failed = 1
	}
	metrics.WriteGaugeUint64(w, "bindery_index_failed"+label, failed)
	if err := x.enter(); err != nil {
		return
	}
	defer x.use.RUnlock()
	if z, err := x.kv.size(); err == nil {
		metrics.WriteGaugeUint64(w, "bindery_index_file_bytes"+label, uint64(z.file))
		metrics.WriteGaugeUint64(w, "bindery_index_free_bytes"+label, uint64(z.free))
	}
}
