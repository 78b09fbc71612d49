package bktest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/binderylog/bindery/bookie"
	"github.com/binderylog/bindery/bookie/index"
	"github.com/binderylog/bindery/internal/intent"
	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/internal/metadata/memmeta"
	"github.com/binderylog/bindery/internal/vfs"
	"github.com/binderylog/bindery/internal/vfs/errorfs"
	"github.com/binderylog/bindery/internal/vfs/memfs"
	"github.com/binderylog/bindery/journal"
)

// member is one bookie: a disk that outlives its processes, and the process that runs now. One goroutine at a time uses it.
type member struct {
	c     *Cluster
	name  string
	root  string // of its cluster in the store
	disk  *memfs.FS
	fault atomic.Pointer[diskFault]

	host  *Host
	store *memmeta.Store
	views *metadata.Views
	b     *bookie.Bookie
	heals bool    // it takes part in auto-recovery
	heal  *healer // its part now
	up    bool
	gone  bool // lost for good
	// retired says that a bookie which is gone has been decommissioned: its name may be used again.
	retired  atomic.Bool
	retiring bool // its operator is at it
	ro       bool // read-only by its operator
	kept     bool // it has never lost anything, and no operation of its disk ever failed
}

// diskFault is what is wrong with a disk at the moment.
type diskFault struct {
	kinds errorfs.Kind
	err   error
	slow  time.Duration
}

// Sizes that let a run of a minute go through several segments and logs.
const (
	segmentBytes = 1 << 20
	logBytes     = 1 << 20
)

func (m *member) newDisk() *memfs.FS {
	journals, ledgers := m.dirs()
	return memfs.New(append(journals, ledgers...)...)
}

func newMember(c *Cluster, name string) *member {
	m := &member{c: c, name: name, root: metadata.DefaultRoot, kept: true}
	m.disk = m.newDisk()
	return m
}

// injector says what the member's disk does wrong.
func (m *member) injector() errorfs.Injector {
	return errorfs.Func("cluster", func(op errorfs.Op) errorfs.Fault {
		f := m.fault.Load()
		if f == nil || op.Kind&f.kinds == 0 {
			return errorfs.Fault{}
		}
		if f.slow > 0 && !groupWrite(op) {
			return errorfs.Fault{}
		}
		return errorfs.Fault{Err: f.err, Delay: f.slow}
	})
}

// groupWrite reports whether a write is a group of a journal. Only those are slowed down: other files are written under
// locks, and who waits for a lock holds up the bubble's clock, which would then never end the delay.
func groupWrite(op errorfs.Op) bool {
	return op.Kind == errorfs.Write && strings.HasPrefix(op.Path, "/journal") && op.Off >= vfs.Align && op.Len < 64<<10
}

func (m *member) dirs() (journals, ledgers []string) {
	for i := range m.c.cfg.Dirs[0] {
		journals = append(journals, fmt.Sprintf("/journal%d", i))
	}
	for i := range m.c.cfg.Dirs[1] {
		ledgers = append(ledgers, fmt.Sprintf("/ledgers%d", i))
	}
	return journals, ledgers
}

func (m *member) options(fs vfs.FS, log *slog.Logger) bookie.Options {
	journals, ledgers := m.dirs()
	o := bookie.Options{
		ID: ledger.BookieID(m.name), Listen: m.name + ":3181", Advertised: m.name + ":3181", Listener: m.host.Listen,
		JournalDirs: journals, LedgerDirs: ledgers, FS: fs, Prepare: true,
		Metadata: m.views, MetadataTimeout: 10 * time.Second,
		InFlightBytes: 4 << 20, ReadWorkers: 2, Logger: log,
	}
	o.Journal.SegmentSize = segmentBytes
	o.Journal.IO = journal.IODSync
	o.Journal.MaxRecordBytes = 256 << 10
	o.Storage.WriteCacheBytes = 512 << 10
	o.Storage.ReadCacheBytes = 1 << 20
	o.Storage.FlushInterval = 2 * time.Second
	o.Storage.Log.LogSize = logBytes
	o.Storage.ReserveBytes = 2 * logBytes
	o.Storage.IdleLedgersMax = 4
	o.Storage.OpenIndex = func(path string, io index.Options) (index.Index, error) { return index.OpenMem(fs, path, io) }
	o.Storage.OpenIntents = func(dir string, io intent.Options) (intent.Log, error) { return intent.OpenVFS(fs, dir, io) }
	o.GC.Interval = 5 * time.Second
	o.GC.Grace = time.Second
	o.GC.Minor.Every, o.GC.Minor.Below = 10*time.Second, 0.4
	o.GC.Major.Every, o.GC.Major.Below = 20*time.Second, 0.8
	o.GC.OverReplicatedEvery, o.GC.Quiet = 10*time.Second, 2*time.Second
	return o
}

// start runs a bookie on the member's disk.
func (m *member) start() error {
	m.host = m.c.net.Join(m.name)
	m.store = m.c.tree.Open()
	m.store.SetFaults(m.c.storeFaults(m.name))
	m.views = metadata.NewViews(m.store, m.root)
	fs := errorfs.Wrap(m.disk, m.injector())
	b, err := bookie.New(m.options(fs, m.c.h.Logger(m.name, m.c.level)))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if err := b.Start(ctx); err != nil {
		m.c.h.Add(m.name, "does not start: %v", err)
		m.host.Kill(false)
		_ = m.store.Close()
		return err
	}
	m.b, m.up = b, true
	m.c.h.Add(m.name, "serves")
	if m.fault.Load() == nil {
		m.c.check.Started(m.name)
	}
	if m.heals {
		m.heal = m.c.startHealer(m.name, m.host, m.store, m.views, b)
	}
	return nil
}

// stop ends the process as its operator would.
func (m *member) stop() {
	if !m.up {
		return
	}
	m.c.h.Add(m.name, "is stopped")
	m.heal.stop()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := m.b.Stop(ctx); err != nil {
		m.c.h.Add(m.name, "stopped: %v", err)
	}
	m.host.Kill(false)
	_ = m.store.Close()
	m.b, m.up = nil, false
}

// errDead is what a dead process hears from the store.
var errDead = errors.New("the process is dead")

// kill ends the process at once. keep is the share of what it did not sync that its disk keeps: 1 if only the process died.
func (m *member) kill(seed uint64, keep float64, silent bool) {
	if !m.up {
		return
	}
	m.c.h.Add(m.name, "dies, keeping %.0f %% of what is not synced", keep*100)
	m.host.Kill(silent) // first: what it said until now it could stand for
	var disk *memfs.FS
	if keep >= 1 {
		disk = m.disk.Clone()
	} else {
		disk = m.disk.CrashClone(seed, keep)
	}
	m.disk.CrashNow()
	m.store.SetFaults(func(memmeta.Op) memmeta.Fault { return memmeta.Fault{Err: errDead} })
	m.heal.stop()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = m.b.Stop(ctx)
	m.store.SetFaults(nil)
	_ = m.store.Close() // the session ends here; in life it would a little later
	m.b, m.up, m.disk = nil, false, disk
}

// wipe gives a dead member an empty disk, with its operator's consent.
func (m *member) wipe() error {
	m.c.h.Add(m.name, "has lost its disk")
	m.c.check.Lost(m.name)
	m.kept = false
	m.disk = m.newDisk()
	store := m.c.tree.Open()
	defer func() { _ = store.Close() }()
	journals, ledgers := m.dirs()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, err := bookie.PrepareNode(ctx, bookie.PrepareOptions{AcceptLoss: true, IdentityOptions: bookie.IdentityOptions{
		FS: m.disk, Views: metadata.NewViews(store, metadata.DefaultRoot), ID: ledger.BookieID(m.name), JournalDirs: journals, LedgerDirs: ledgers,
		Logger: m.c.h.Logger(m.name, m.c.level)}})
	if err != nil {
		return fmt.Errorf("prepare %s: %w", m.name, err)
	}
	return nil
}

// vanish loses the member for good.
func (m *member) vanish(seed uint64) {
	m.kill(seed, 0, true)
	m.c.h.Add(m.name, "is lost for good")
	m.c.check.Lost(m.name)
	m.kept, m.gone = false, true
	m.disk = m.newDisk()
}

// setReadOnly is its operator's command.
func (m *member) setReadOnly(on bool) {
	m.ro = on
	if m.up {
		m.c.h.Add(m.name, "read-only %v: %v", on, m.b.SetReadOnly(m.c.ctx, on))
	}
}

// breakDisk makes operations fail until healDisk.
func (m *member) breakDisk(kinds errorfs.Kind) {
	m.kept = false
	m.c.h.Add(m.name, "disk: every %s fails", kinds)
	m.fault.Store(&diskFault{kinds: kinds, err: syscall.EIO})
}

// rot flips a few bits of a dead member's journals and entry logs.
func (m *member) rot(rng *rand.Rand) {
	m.kept = false
	var names []string
	for _, name := range m.disk.Files() {
		if strings.HasSuffix(name, ".log") || strings.HasPrefix(name, "/journal") && strings.HasSuffix(name, ".jnl") {
			names = append(names, name)
		}
	}
	for range 1 + rng.IntN(3) {
		if len(names) == 0 {
			return
		}
		name := names[rng.IntN(len(names))]
		info, err := m.disk.Stat(name)
		if err != nil || info.Size == 0 {
			continue
		}
		// Most of a segment is zeros that nobody reads: the beginning is where the harm is.
		bit := rng.Int64N(8 * min(info.Size, 64<<10))
		m.c.h.Add(m.name, "disk: bit %d of %s goes bad", bit, name)
		if err := m.disk.FlipBit(name, bit); err != nil {
			m.c.h.Add(m.name, "disk: %v", err)
		}
	}
}

func (m *member) slowDisk(d time.Duration) {
	m.c.h.Add(m.name, "disk: writes take %v", d)
	m.fault.Store(&diskFault{kinds: errorfs.Write, slow: d})
}

func (m *member) fillDisk() {
	m.c.h.Add(m.name, "disk: full")
	m.disk.SetCapacity(4096)
}

func (m *member) healDisk() {
	m.fault.Store(nil)
	m.disk.SetCapacity(0)
}
