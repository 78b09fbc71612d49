package ledgerclient

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/wire"
	"github.com/binderylog/bindery/offload"
)

type (
	// LedgerID names a ledger.
	LedgerID = ledger.ID
	// EntryID is the position of an entry in its ledger, from 0.
	EntryID = ledger.EntryID
	// BookieID is the name under which a bookie registers.
	BookieID = ledger.BookieID
	// Metadata is the record of a ledger in the metadata store.
	Metadata = ledger.Metadata
	// Fragment is a run of entries that one ensemble stores.
	Fragment = ledger.Fragment
	// State is the state of a ledger.
	State = ledger.State
	// DigestType says which digest the entries of a ledger carry.
	DigestType = ledger.DigestType
	// Quorum is the replication of a ledger: valid when Ensemble >= Write >= Ack >= 1.
	Quorum = ledger.Quorum
)

// Constants of the protocol.
const (
	InvalidEntry = ledger.InvalidEntry

	StateOpen       = ledger.StateOpen
	StateInRecovery = ledger.StateInRecovery
	StateClosed     = ledger.StateClosed

	DigestCRC32  = ledger.DigestCRC32
	DigestHMAC   = ledger.DigestHMAC
	DigestCRC32C = ledger.DigestCRC32C
	DigestDummy  = ledger.DigestDummy
)

// Options configures a Client. The zero value of a field means its default.
type Options struct {
	// MaxPendingBytes bounds the memory of adds that are under way in all writers together; Append and AppendAsync wait
	// while it is used up. Default 64 MiB. It must hold the largest entry.
	MaxPendingBytes int64
	// MaxFrameBytes is the largest frame sent or taken. It must match the bookies' own limit. Default 5 MiB.
	MaxFrameBytes int

	ConnectTimeout  time.Duration // to reach a bookie and greet it; default 3 s
	AddTimeout      time.Duration // without an answer to an add, or this far behind the ack quorum, the bookie is replaced; default 5 s
	ReadTimeout     time.Duration // without an answer to a read, it has failed on that bookie; default 5 s
	HedgeDelay      time.Duration // a read that takes longer is also sent to the next bookie, earlier if its bookie is usually quick; default 500 ms
	PeerTimeout     time.Duration // a bookie that owes an answer and sends nothing, not even to a ping, is given up; default 8 s
	LongPollTimeout time.Duration // how long a tailing reader lets a bookie hold back its answer at most; default 1 s
	MetadataTimeout time.Duration // how long an operation keeps trying an unavailable metadata store; default 30 s
	DialTimeout     time.Duration // how long Dial waits for the metadata store; default 10 s

	// Quarantine is how long a bookie that failed is not chosen for ensembles, unless there is no other. Repeated failures
	// make it longer, up to 8 times; afterwards the bookie is chosen less often until the failures have faded, by half every
	// Quarantine. Default 30 s.
	Quarantine time.Duration
	// ExplicitLACInterval is how often an idle writer tells bookies the LAC that no entry carries, so that tailing readers
	// see the last entry. Default 500 ms; negative: never.
	ExplicitLACInterval time.Duration
	// ReadWindowBytes bounds the entries that one iteration reads ahead of its consumer. Default 4 MiB.
	ReadWindowBytes int64

	// Offload are the object stores that closed ledgers may have moved to: what bookies do not have any more is opened and read
	// there (offload/objstore/driver reads them from a file). They stay the caller's to close. Default none.
	Offload *offload.Targets
	// OffloadKeys are the keys of ledgers that were encrypted when they moved there (driver.OpenKeys of the same package). Default none.
	OffloadKeys offload.KeySource

	Logger *slog.Logger // default slog.Default()
}

// EnsureDefaults returns the options with every zero field set to its default.
func (o *Options) EnsureDefaults() *Options {
	var c Options
	if o != nil {
		c = *o
	}
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	if c.MaxPendingBytes == 0 {
		c.MaxPendingBytes = 64 << 20
	}
	if c.MaxFrameBytes == 0 {
		c.MaxFrameBytes = wire.DefaultFrameLimit
	}
	def(&c.ConnectTimeout, 3*time.Second)
	def(&c.AddTimeout, 5*time.Second)
	def(&c.ReadTimeout, 5*time.Second)
	def(&c.PeerTimeout, 8*time.Second)
	def(&c.HedgeDelay, 500*time.Millisecond)
	def(&c.LongPollTimeout, time.Second)
	def(&c.MetadataTimeout, 30*time.Second)
	def(&c.DialTimeout, 10*time.Second)
	def(&c.Quarantine, 30*time.Second)
	def(&c.ExplicitLACInterval, 500*time.Millisecond)
	if c.ReadWindowBytes == 0 {
		c.ReadWindowBytes = 4 << 20
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return &c
}

// Validate returns an error for options that can not work.
func (o *Options) Validate() error {
	switch {
	case o.MaxFrameBytes < 1<<10 || o.MaxFrameBytes > 1<<30:
		return fmt.Errorf("ledgerclient: MaxFrameBytes is %d; it must lie between 1 KiB and 1 GiB", o.MaxFrameBytes)
	case o.MaxPendingBytes < int64(o.MaxFrameBytes):
		return fmt.Errorf("ledgerclient: MaxPendingBytes is %d; it must hold at least one frame of %d bytes", o.MaxPendingBytes, o.MaxFrameBytes)
	case o.ReadWindowBytes < 1:
		return fmt.Errorf("ledgerclient: ReadWindowBytes is %d; it must be positive", o.ReadWindowBytes)
	}
	for _, d := range []struct {
		name string
		v    time.Duration
	}{{"ConnectTimeout", o.ConnectTimeout}, {"AddTimeout", o.AddTimeout}, {"ReadTimeout", o.ReadTimeout}, {"PeerTimeout", o.PeerTimeout}, {"HedgeDelay", o.HedgeDelay},
		{"LongPollTimeout", o.LongPollTimeout}, {"MetadataTimeout", o.MetadataTimeout}, {"DialTimeout", o.DialTimeout}, {"Quarantine", o.Quarantine}} {
		if d.v < 0 {
			return fmt.Errorf("ledgerclient: %s is %v; it must not be negative", d.name, d.v)
		}
	}
	return nil
}

// CreateOptions describes a new ledger. The zero value means E=3 Qw=3 Qa=2, CRC32C, no password.
type CreateOptions struct {
	Quorum   Quorum
	Digest   DigestType
	Password []byte
	Custom   map[string][]byte // kept in the record. "bindery.tier" is added as "release" unless it is there

	// ID asks for this very id instead of a new one; ErrLedgerExists if it is taken. An id must never be used again after its
	// ledger was deleted: bookies refuse adds to ledgers that they have deleted.
	ID *LedgerID
	// OpportunisticStriping takes a smaller ensemble, down to Quorum.Write, if there are not enough bookies.
	OpportunisticStriping bool
	// DelayEnsembleChange keeps a failed bookie in the ensemble while every entry can still reach its ack quorum, and sends it
	// nothing until it answers again: short absences then change no record, but leave entries with fewer copies.
	DelayEnsembleChange bool

	// DeferredSync lets bookies acknowledge entries before they are on stable storage. Only Force makes them durable and
	// moves the LAC; a bookie that fails ends the ledger, since its ensemble can not be changed.
	DeferredSync bool
}

// OpenOptions says how a ledger is opened.
type OpenOptions struct {
	// Recover ends the ledger if it is not closed: its writer is fenced, its end agreed and sealed.
	Recover bool
	// Password is compared with that of the record.
	Password []byte
	// Admin takes the password from the record instead.
	Admin bool
}

// Entry is one entry of a ledger.
type Entry struct {
	ID   EntryID
	Data []byte // the caller's to keep

	body []byte // what bookies keep of it, Data included; nil if it comes from the tier
}

// Bookie is a registered bookie.
type Bookie struct {
	ID          BookieID
	Address     string
	ReadOnly    bool
	Quarantined bool // this client saw it fail a moment ago
}
