package bookie

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"time"

	"github.com/binderylog/bindery/bookie/gc"
	"github.com/binderylog/bindery/bookie/storage"
	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/internal/vfs"
	"github.com/binderylog/bindery/internal/wire"
	"github.com/binderylog/bindery/journal"
)

// Durability says what an acknowledged add has gone through.
type Durability string

// The settings of journal.durability.
const (
	DurabilitySync    Durability = "sync"    // synced journal
	DurabilityRelaxed Durability = "relaxed" // journal written to the page cache; needs journal.IOBuffered
	DurabilityOff     Durability = "off"     // write cache only; fences, keys and explicit LACs are still journaled
)

// ListenFunc makes a listener for an address.
type ListenFunc func(ctx context.Context, addr string) (net.Listener, error)

// Options configure a Bookie. The zero value of a field means the default unless its comment says that it is required.
type Options struct {
	ID         ledger.BookieID // default: Advertised
	Listen     string          // address of the bookie protocol, required; port 0 picks a free one
	Listener   ListenFunc      // makes the listener of Listen; default: TCP
	Advertised string          // host:port under which clients reach the bookie; default: the listener's address

	// Domain is what fails together with the bookie, "/rack" or "/region/rack", published with the registration; empty: only
	// the bookie itself.
	Domain       string
	AdminAddress string // host:port of the process's admin server, published with the registration; empty: none

	JournalDirs    []string // required
	LedgerDirs     []string // required
	IndexDirs      []string // empty, or one per ledger directory
	AllowExpansion bool     // new empty ledger directories may join
	Prepare        bool     // stamp unstamped empty directories (standalone); otherwise they are refused

	Journal    journal.Options // of every journal directory; Label and Relaxed are set by the bookie
	Storage    storage.Options // Dirs, Journals, OnCheckpoint and OnDirFailed are set by the bookie
	GC         gc.Options      // of the garbage collector
	Durability Durability      // default sync

	Metadata         *metadata.Views // required; the caller closes the store after Stop
	MetadataTimeout  time.Duration   // for one metadata operation of the running bookie; default 30 s
	RegistrationWait time.Duration   // how long a start waits for a predecessor's registration to go; default 45 s

	InFlightBytes     int64         // budget for requests and answers in memory; default 32 MiB, at least 1 MiB
	SlowClientTimeout time.Duration // a peer that neither reads its answers nor completes its frame for so long is cut; default 30 s
	FrameLimit        int           // bytes of the largest frame, length included; default wire.PulsarFrameLimit
	ReadWorkers       int           // concurrent reads from disk; default 4 per core, 8 to 64
	DiskCheckInterval time.Duration // default 5 s
	// StoreCheckInterval is how often the bookie looks whether the metadata store was rolled back; default 10 s.
	StoreCheckInterval time.Duration
	FullMetrics        bool          // every name of BookKeeper's that can be filled, not only those of its dashboards
	ReadOnly           bool          // start, and stay, read-only (--read-only)
	Drain              time.Duration // how long a stop lets clients move their ledgers away, registered read-only; default 0

	FS     vfs.FS       // default: the operating system's
	Logger *slog.Logger // labelled with the bookie's id by the caller; default: slog.Default()
}

// Limits that are constants because nobody has had a reason to turn them.
const (
	addWaitMax        = 2 * time.Second // an add waits so long for room, then gets ETOOMANYREQUESTS (decision 18)
	longPollsMax      = 1 << 16         // waiting long polls of one bookie; about 400 bytes each
	batchReadMax      = 5 << 20         // bytes of a batch read answer, whatever the client asks
	connReadsMax      = 1024            // reads of one connection that have not been answered
	parkedMax         = 64              // of them such that wait until the peer has taken earlier answers
	connOutHigh       = 1 << 20         // unsent answer bytes of one connection beyond which it is not read
	verifyMax         = 4096            // adds that wait for a metadata read
	verifyConcurrency = 8
	connectionsMax    = 1 << 16
)

// EnsureDefaults fills the fields that are zero.
func (o *Options) EnsureDefaults() {
	setDefault(&o.Durability, DurabilitySync)
	setDefault(&o.MetadataTimeout, 30*time.Second)
	setDefault(&o.RegistrationWait, 45*time.Second)
	setDefault(&o.InFlightBytes, 32<<20)
	setDefault(&o.SlowClientTimeout, 30*time.Second)
	setDefault(&o.FrameLimit, wire.PulsarFrameLimit)
	setDefault(&o.ReadWorkers, min(64, max(8, 4*runtime.NumCPU())))
	setDefault(&o.DiskCheckInterval, 5*time.Second)
	setDefault(&o.StoreCheckInterval, storeCheckEvery)
	if o.FS == nil {
		o.FS = vfs.OS()
	}
	if o.Listener == nil {
		o.Listener = listenTCP
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Journal.QueueBytes == 0 {
		// The in-flight budget is what binds; the journal's own bound only has to lie above it.
		o.Journal.QueueBytes = int(o.InFlightBytes) + 2*o.FrameLimit
	}
	if o.Journal.Logger == nil {
		o.Journal.Logger = o.Logger
	}
	if o.Storage.Logger == nil {
		o.Storage.Logger = o.Logger
	}
	if o.GC.Logger == nil {
		o.GC.Logger = o.Logger
	}
	o.GC.EnsureDefaults()
}

func listenTCP(ctx context.Context, addr string) (net.Listener, error) {
	var lc net.ListenConfig
	return lc.Listen(ctx, "tcp", addr)
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Validate says what is wrong with the options, in the words of the configuration file.
func (o *Options) Validate() error {
	switch {
	case o.Listen == "":
		return errors.New(`bookie.listen is empty: give an address such as "0.0.0.0:3181"`)
	case len(o.JournalDirs) == 0:
		return errors.New("storage.journal_dirs is empty: name at least one directory")
	case len(o.LedgerDirs) == 0:
		return errors.New("storage.ledger_dirs is empty: name at least one directory")
	case len(o.IndexDirs) != 0 && len(o.IndexDirs) != len(o.LedgerDirs):
		return fmt.Errorf("storage.index_dirs names %d directories, storage.ledger_dirs %d: leave it empty or give one for each", len(o.IndexDirs), len(o.LedgerDirs))
	case o.Metadata == nil:
		return errors.New("metadata.uri is not set")
	case o.Durability != DurabilitySync && o.Durability != DurabilityRelaxed && o.Durability != DurabilityOff:
		return fmt.Errorf("journal.durability = %q: must be sync, relaxed or off", o.Durability)
	case o.Durability == DurabilityRelaxed && o.Journal.IO != journal.IOBuffered:
		return fmt.Errorf(`journal.durability = "relaxed" needs journal.io = "buffered", not %q`, o.Journal.IO)
	case o.InFlightBytes < 1<<20:
		return fmt.Errorf("limits.in_flight = %d: must be at least 1 MiB", o.InFlightBytes)
	case o.SlowClientTimeout < time.Second:
		return fmt.Errorf("limits.slow_client_timeout = %v: must be at least 1s", o.SlowClientTimeout)
	case o.Drain < 0:
		return fmt.Errorf("drain time %v is negative", o.Drain)
	case o.FrameLimit < 1<<10 || o.FrameLimit > 64<<20:
		return fmt.Errorf("frame limit of %d bytes: must be between 1 KiB and 64 MiB", o.FrameLimit)
	case o.ReadWorkers < 1 || o.ReadWorkers > 1024:
		return fmt.Errorf("%d read workers: must be between 1 and 1024", o.ReadWorkers)
	}
	return o.GC.Validate()
}
