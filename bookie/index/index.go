package index

import (
	"context"
	"errors"
	"io"
	"iter"
	"log/slog"
	"slices"

	"github.com/binderylog/bindery/entrylog"
)

// FileName is the index's name in an index directory's `current`.
const FileName = "index.db"

// Errors that callers test for. Damage is a *corrupt.Error.
var (
	// ErrNotFound is returned when it is certain that the index holds no such entry or ledger: the neighbouring runs
	// link up.
	ErrNotFound = errors.New("not in the index")
	// ErrFailed is returned, wrapped in the cause, once the index file of this directory can not be used: an I/O error,
	// or damage that bbolt ran into. It stays so until the index is opened again; rebuild it from the entry logs.
	ErrFailed = errors.New("index failed")
	// ErrNoSpace is returned when the file system is full. Nothing of the transaction is there; free space and try again.
	ErrNoSpace = errors.New("no space for the index")
	// ErrClosed is returned after Close.
	ErrClosed = errors.New("index is closed")
)

// Index is the index of one ledger directory. All methods may be called from any goroutine.
type Index interface {
	Lookup
	Change
	Values
	// Check reads everything and calls fn for each thing wrong. Its own error says that it could not go on.
	Check(ctx context.Context, fn func(error)) error
	// Stats returns sizes and counters; the counts are read from the index.
	Stats() (Stats, error)
	// WritePrometheus writes the metrics.
	WritePrometheus(w io.Writer)
	// Err returns why the index has failed, or nil.
	Err() error
	// Close closes the file.
	Close() error
}

// Lookup finds what the index holds.
type Lookup interface {
	// Locate returns an entry's place, ErrNotFound or a *corrupt.Error.
	Locate(ledger, entry int64) (entrylog.Location, error)
	// LocateRun returns the whole run that holds the entry, for read-ahead.
	LocateRun(ledger, entry int64) (RunInfo, error)
	// Last returns the ledger's highest entry id, or ErrNotFound if it holds none.
	Last(ledger int64) (int64, error)
	// Runs returns the ledger's runs from the one that holds entry `from`, or the next one behind it, in order of
	// entry. An error ends the sequence; the sequence holds no transaction open while yielding.
	Runs(ledger, from int64) iter.Seq2[RunInfo, error]
	// State returns the ledger's newest state, and whether there is one.
	State(ledger int64) (data []byte, ok bool, err error)
	// Ledgers returns up to limit ids above `after` (-1 for all) of ledgers that have entries or a state, ascending.
	Ledgers(after int64, limit int) ([]int64, error)
}

// Change keeps the index in step with the entry logs.
type Change interface {
	// Ingest adds a log's runs (in order of ledger; Footer.Runs) and states in transactions of at most 16 MiB, and
	// notes the log as ingested in the last one. Doing it again, or going on after a crash, is harmless. Where an entry is
	// held already, the copy in the newer log (LogInfo.Before, then the higher offset) wins. States must be each ledger's
	// newest in that log.
	Ingest(ctx context.Context, log entrylog.LogInfo, runs iter.Seq2[entrylog.Run, error], states []entrylog.LedgerState) error
	// Ingested reports whether a log's runs are in the index.
	Ingested(log entrylog.LogID) (bool, error)
	// Logs returns the logs noted as ingested.
	Logs() ([]entrylog.LogID, error)
	// Drop forgets that a log was ingested: it has been removed. Runs that still point to it stay, and reading them
	// fails.
	Drop(log entrylog.LogID) error
	// Relocate changes each entry's place to New if it is still Old, in one transaction, and returns how many it
	// changed.
	Relocate(moves []Move) (moved int, err error)
	// DeleteLedgers removes everything about the ledgers, and puts meta in the first transaction.
	DeleteLedgers(ledgers []int64, meta ...MetaValue) error
}

// Values are small named values of the caller, kept with the index.
type Values interface {
	// Meta returns a value, and whether there is one.
	Meta(key string) (value []byte, ok bool, err error)
	// MetaValues returns all of them, by key.
	MetaValues() ([]MetaValue, error)
	// PutMeta stores values durably, all or none. A nil Value deletes the key.
	PutMeta(values ...MetaValue) error
}

// RunInfo is a run in the index.
type RunInfo struct {
	entrylog.Run
	Prev int64 // last entry id of the ledger's preceding run, -1 if there is none
}

// Move changes the place of one entry.
type Move struct {
	Ledger, Entry int64
	Old, New      entrylog.Location
}

// MetaValue is a small named value of the caller.
type MetaValue struct {
	Key   string
	Value []byte
}

// Stats describe an index.
type Stats struct {
	Runs, Entries, Ledgers, States, Logs int64
	KeyValueBytes                        int64 // keys and values alone
	FileBytes                            int64 // length of the file
	UsedBytes                            int64 // of it pages in use
	FreeBytes                            int64 // of it pages to be used again; the rest is grown ahead
}

// Options configure an index. The zero value means the defaults.
type Options struct {
	// InitialMapSize is the address space in bytes mapped at once, so that growth does not stop readers. Default 16 GiB
	// on 64-bit machines. It costs no memory.
	InitialMapSize int64
	// Lookups bounds the look-ups that run at a time, since each may block its thread in a page fault. Default half of
	// the cores, at least one.
	Lookups int
	// MustExist refuses a missing or empty file with a *corrupt.Error instead of beginning a new index: the caller knows
	// that there was one.
	MustExist bool
	// ReadOnly opens an existing file for inspection.
	ReadOnly bool
	// Logger receives what operators should know. Default: nobody.
	Logger *slog.Logger
}

// RebuildReport says what Rebuild did.
type RebuildReport struct {
	Logs    int
	Runs    int64
	Entries int64
	Ledgers int64
	States  int64
	// Damage lists what could not be read. If it is not empty, entries or states may be missing: see MetaSuspect.
	Damage []entrylog.Damage
}

// MetaSuspect is the key under which Rebuild notes that the entry logs did not prove everything. While it is set, the
// storage treats every ledger of the directory as fenced and in limbo.
const MetaSuspect = "suspect"

var discardLogger = slog.New(slog.DiscardHandler)

// sortByAge orders logs by the age of what they hold.
func sortByAge(logs []entrylog.LogInfo) {
	slices.SortFunc(logs, func(a, b entrylog.LogInfo) int {
		switch {
		case a.Before(b):
			return -1
		case b.Before(a):
			return 1
		}
		return 0
	})
}

// damageOf notes a log of which nothing could be read.
func damageOf(id entrylog.LogID, err error) entrylog.Damage {
	d := entrylog.Damage{Log: id, Runs: true, States: true}
	errors.As(err, &d.Err)
	return d
}
