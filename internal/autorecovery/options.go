package autorecovery

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/binderylog/bindery/bookie/storage"
	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/ledgerclient"
)

// LocalBookie is a bookie of this process, as the scrubber needs it.
type LocalBookie interface {
	ID() string
	Damaged() (list []storage.Damaged, dropped int64)
	Repaired(d storage.Damaged) (bool, error)
	Forget(d storage.Damaged)
	Scrub(ctx context.Context, limit func(ctx context.Context, bytes int) error) (storage.Scrubbed, error)
	Limbo(after ledger.ID, limit int) ([]ledger.ID, error)
	EndLimbo(ctx context.Context, id ledger.ID) (bool, error)
}

// Options configure a Service. The zero value of a field means its default.
type Options struct {
	// Name stands in votes and locks: the bookie's id, or the host's name.
	Name string
	// Client moves the bytes. It stays the caller's.
	Client *ledgerclient.Client
	Views  *metadata.Views
	// Local are the bookies of this process, whose damage is repaired and whose disks are scrubbed.
	Local []LocalBookie

	LostBookieDelay time.Duration // seeds the cluster's delay if none is stored; default 10 min, negative: 0
	BookieCheck     time.Duration // between two looks for ledgers of lost bookies; default 24 h, negative: only at the start
	LedgerCheck     time.Duration // between two checks of all ledgers; default 168 h, negative: never
	PlacementCheck  time.Duration // between two checks of placement; default 0: never
	ReplicasCheck   time.Duration // between two counts of replicas; default 0: never
	VerifyPercent   int           // share of the entries that the check of all ledgers reads, beside first and last; default 0
	MinRacks        int           // domains that each write set should lie on; default 2
	RepairPlacement bool          // move copies of closed ledgers that lie on fewer

	OpenGrace     time.Duration // for the writer of an open ledger; default 30 s
	FailedHold    time.Duration // longest time for which a ledger that can not be repaired is left alone; default 5 min
	Backoff       time.Duration // after trouble with the store; default 5 s
	Rate          int64         // bytes a second that this node copies at most; default 16 MiB, negative: no limit
	Parallel      int           // ledgers worked on at once; default 8
	InHand        int           // ledgers held at once, those that wait included; default 1024
	InFlightBytes int64         // of copies under way; default 32 MiB
	ScrubEvery    time.Duration // between two scrubs of a local bookie; default 168 h, negative: never
	ScrubRate     int64         // bytes a second that a scrub reads; default 16 MiB
	LocalEvery    time.Duration // between two looks at what local bookies lack; default 30 s

	Logger *slog.Logger // default slog.Default()

	private struct { // for tests
		noAuditor, noWorker bool
	}
}

// EnsureDefaults fills in what is zero.
func (o *Options) EnsureDefaults() {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	def(&o.LostBookieDelay, 10*time.Minute)
	def(&o.BookieCheck, 24*time.Hour)
	def(&o.LedgerCheck, 7*24*time.Hour)
	def(&o.OpenGrace, 30*time.Second)
	def(&o.FailedHold, 5*time.Minute)
	def(&o.Backoff, 5*time.Second)
	def(&o.ScrubEvery, 7*24*time.Hour)
	def(&o.LocalEvery, 30*time.Second)
	number := func(n *int64, v int64) {
		if *n == 0 {
			*n = v
		}
	}
	number(&o.Rate, DefaultRate)
	number(&o.InFlightBytes, 32<<20)
	number(&o.ScrubRate, 16<<20)
	if o.Parallel == 0 {
		o.Parallel = 8
	}
	if o.InHand == 0 {
		o.InHand = 1024
	}
	if o.MinRacks == 0 {
		o.MinRacks = 2
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
}

// DefaultRate is what "auto" means. Measured with everything on two processors: the p99 of a writer beside it is a few
// milliseconds at 16 MiB/s, and tens of them where the rate is what the machine can do.
const DefaultRate = 16 << 20

// Validate reports what can not work.
func (o *Options) Validate() error {
	switch {
	case o.Name == "" || o.Client == nil || o.Views == nil:
		return errors.New("autorecovery: a name, a client and the metadata are required")
	case o.Parallel < 1 || o.InHand < o.Parallel:
		return errors.New("autorecovery: Parallel must be at least 1 and InHand no less")
	case o.InFlightBytes < 1<<20:
		return errors.New("autorecovery: InFlightBytes must be at least 1 MiB")
	case o.VerifyPercent < 0 || o.VerifyPercent > 100:
		return errors.New("autorecovery: VerifyPercent must lie between 0 and 100")
	}
	return nil
}
