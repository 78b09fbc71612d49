// Package entrylog keeps entry bodies in append-only logs.
package entrylog

import (
	"context"
	"errors"
	"io"
	"iter"

	"github.com/binderylog/bindery/internal/corrupt"
	"github.com/binderylog/bindery/internal/vfs"
)

const (
	headerSize = vfs.Align
	maxOffset  = 1 << 48
)

var errNotYet = errors.New("not yet")

// Store is the entry logs of one directory. Append, Checkpoint and Abort belong to one goroutine, the flusher; all other
// methods may be called from any.
type Store struct{}

// Recovered is what Open found.
type Recovered struct {
	// Unsealed are the logs without a footer, oldest first: those that were being written when the process ended. Unless
	// ReadOnly was set, Open has sealed them, if the disk let it.
	Unsealed []RecoveredLog
	// Damage lists what could not be read of the unsealed logs, within what is known to have been synced. Entries and
	// states that lay there are lost here: the caller can not deny any entry, nor trust any ledger to be unfenced, on
	// the strength of this directory alone.
	Damage []Damage
	// Removed are unfinished files of an earlier process (compactions, empty logs) that were deleted.
	Removed []string
}

// RecoveredLog is an unsealed log.
type RecoveredLog struct {
	Info   LogInfo       // after sealing, if that worked
	Runs   []Run         // in order of their checkpoints, then by ledger and entry; a later one wins over an earlier one
	States []LedgerState // the newest of each ledger, by ledger
	End    Position      // behind the last valid record
	Cut    int64         // bytes behind End that do not parse: a torn tail
}

// Damage is a part of a log whose content is unknown.
type Damage struct {
	Log    LogID
	Length int64 // bytes that could not be understood; 0 when that is not known
	Runs   bool  // entries may be missing from the runs
	States bool  // ledger states may be missing
	Err    *corrupt.Error
}

// Open reads what is in dir (a ledger directory's `current`), deletes what a crash left unfinished and seals unsealed
// logs. The caller holds the directory's lock.
func Open(fs vfs.FS, dir string, o Options) (*Store, *Recovered, error) { return nil, nil, errNotYet }

// Append puts a body at the end of the current log, beginning a new log if there is none. The body's first 16 bytes are
// ledger id and entry id. It is copied. The location may be read once Checkpoint has returned nil.
func (s *Store) Append(body []byte) (Location, error) { return Location{}, errNotYet }

// Checkpoint makes everything appended since the last one durable, together with its run table and with the ledger
// states that changed. Runs are in order of ledger and entry and describe exactly what was appended; states are in any
// order, each ledger once. Without entries and states it does nothing. The log is closed and sealed in the background
// when it is past its size.
//
// After an error nothing since the last checkpoint is durable; call Abort and begin again.
func (s *Store) Checkpoint(runs []Run, states []LedgerState) error { return errNotYet }

// Abort gives up everything appended since the last checkpoint: the locations handed out are void. If the current log
// has failed, the next Append begins a new one.
func (s *Store) Abort() error { return errNotYet }

// Durable returns the end of the last checkpoint. The caller keeps it with its mark and hands it to Open.
func (s *Store) Durable() Position { return Position{} }

// Roll seals the current log in the background even though it is not full. Nothing may be appended since the last
// checkpoint.
func (s *Store) Roll() error { return errNotYet }

// Read returns the body at loc, in dst if that is large enough. It fails with a *corrupt.Error if the record is damaged or
// not what loc says, and with ErrNoLog if the log was removed. The caller checks the ids: see IDs.
func (s *Store) Read(loc Location, dst []byte) ([]byte, error) { return nil, errNotYet }

// ReadRange returns up to n bytes of a log from off, the start of a record, in dst if that is large enough. Fewer bytes
// come back at the end of what is durable.
func (s *Store) ReadRange(log LogID, off int64, n int, dst []byte) (Chunk, error) {
	return Chunk{}, errNotYet
}

// Chunk is a part of a log.
type Chunk struct {
	Log    LogID
	Offset int64
	Data   []byte // aliases the buffer it was read into
}

// Records returns the entries that lie whole in the chunk. The first damaged record ends the sequence with a
// *corrupt.Error; bodies alias the chunk.
func (c Chunk) Records() iter.Seq2[Record, error] { return nil }

// Record is one entry.
type Record struct {
	Location      Location
	Ledger, Entry int64
	Body          []byte
}

// IDs returns the ledger and entry id in a body's first 16 bytes; the body has at least MinBody bytes.
func IDs(body []byte) (ledger, entry int64) { return 0, 0 }

// Logs returns all logs, oldest id first, without those whose removal is pending.
func (s *Store) Logs() []LogInfo { return nil }

// Log returns one of them, or ErrNoLog.
func (s *Store) Log(id LogID) (LogInfo, error) { return LogInfo{}, errNotYet }

// Footer returns what a log holds. It reads the footer; if that is missing or damaged, the run tables of the checkpoints;
// where they are damaged, the records themselves. It never believes an empty ledger map that it can not check: what stays
// unknown is in Damage, and a log with damage must not be deleted for holding nothing.
// The log being written has no footer: ErrNotFinal.
func (s *Store) Footer(id LogID) (*Footer, error) { return nil, errNotYet }

// Footer is the content of a log that is no longer written.
type Footer struct {
	Info    LogInfo
	Source  Source
	Entries int64
	Ledgers map[int64]int64 // bytes of entries with their record headers, by ledger
	States  []LedgerState   // the newest of each ledger in this log, by ledger
	Damage  []Damage        // empty: the content is known whole
}

// Source says where a Footer was read from.
type Source uint8

// Sources, in the order in which they are tried.
const (
	FromFooter Source = iota + 1
	FromCheckpoints
	FromRecords
)

// Runs returns the log's runs by ledger and last entry. Where an entry was appended twice, two runs overlap, and the one
// with the higher offset is the newer. An error ends the sequence.
func (f *Footer) Runs() iter.Seq2[Run, error] { return nil }

// Scan calls fn for every entry of a log, in order of offset. Records that are damaged are passed as an error, and the
// scan goes on behind them as far as the run tables tell where; fn's error ends it.
func (s *Store) Scan(ctx context.Context, id LogID, fn func(Record, error) error) error {
	return errNotYet
}

// Remove deletes a log. From the moment it is called, reads of the log fail with ErrNoLog; the file goes when the last
// reader has left. If deleting fails, the error says why and the log stays pending: see RetryRemovals.
func (s *Store) Remove(id LogID) error { return errNotYet }

// RetryRemovals tries once more to delete what Remove could not, and returns how many logs are still pending.
func (s *Store) RetryRemovals() (left int, err error) { return 0, errNotYet }

// Pending returns the logs whose removal has not worked yet; their space is not free.
func (s *Store) Pending() []LogInfo { return nil }

// NewCompactionWriter begins a log of its own for entries copied from the given sealed logs. It becomes visible, whole,
// with Seal; a crash before leaves nothing.
func (s *Store) NewCompactionWriter(sources ...LogID) (*CompactionWriter, error) {
	return nil, errNotYet
}

// CompactionWriter writes one log. It belongs to one goroutine.
type CompactionWriter struct{}

// ID returns the id that the log will have.
func (w *CompactionWriter) ID() LogID { return 0 }

// Append copies a body into the log.
func (w *CompactionWriter) Append(body []byte) (Location, error) { return Location{}, errNotYet }

// Checkpoint makes what was appended durable.
func (w *CompactionWriter) Checkpoint(runs []Run, states []LedgerState) error { return errNotYet }

// Size returns the bytes appended so far.
func (w *CompactionWriter) Size() int64 { return 0 }

// Seal writes the footer, syncs and makes the log visible. Afterwards the locations may be read, and the index changed.
// Everything appended must be covered by a checkpoint.
func (w *CompactionWriter) Seal() (LogInfo, error) { return LogInfo{}, errNotYet }

// Abort deletes the file. After Seal it does nothing.
func (w *CompactionWriter) Abort() error { return errNotYet }

// Stats are counters and gauges of a store.
type Stats struct {
	Logs         int
	Bytes        int64 // in logs, unsealed ones included
	PendingLogs  int   // removal pending
	PendingBytes int64
	Unsealed     int
	Entries      uint64 // appended since Open
	EntryBytes   uint64
	Written      uint64 // bytes written to files
	Checkpoints  uint64
	Syncs        uint64
	Reads        uint64
	ReadBytes    uint64
	Corrupt      uint64 // damaged records met by reads
	Failures     uint64 // failed writes and syncs
}

// Stats returns them.
func (s *Store) Stats() Stats { return Stats{} }

// WritePrometheus writes the store's metrics.
func (s *Store) WritePrometheus(w io.Writer) {}

// Close waits for sealing to finish and closes every file. What was appended since the last checkpoint is given up.
func (s *Store) Close() error { return errNotYet }

// Reserve makes sure that dir holds a ballast file of the given size: space set aside so that flush, garbage collection
// and replay work on a full disk. It fails with ErrNoSpace if the disk does not have it.
func Reserve(fs vfs.FS, dir string, size int64) error { return errNotYet }

// ReleaseReserve gives the space back to the file system and returns its size.
func ReleaseReserve(fs vfs.FS, dir string) (int64, error) { return 0, errNotYet }

// ReserveSize returns the size of the ballast file in dir, 0 if there is none.
func ReserveSize(fs vfs.FS, dir string) (int64, error) { return 0, errNotYet }
