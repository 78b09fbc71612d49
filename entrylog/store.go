package entrylog

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/binderylog/bindery/internal/corrupt"
	"github.com/binderylog/bindery/internal/invariant"
	"github.com/binderylog/bindery/internal/vfs"
)

// Store is the entry logs of one directory. Append, Checkpoint, Abort and Roll belong to one goroutine, the flusher; all
// other methods may be called from any.
type Store struct {
	fs    vfs.FS
	dir   string
	o     Options
	count counters

	wmu sync.Mutex // guards w and cur: held for the length of one flusher call; taken before mu
	w   *logWriter // the log being written, or nil
	cur *logFile   // its place in logs

	rmu        sync.Mutex // serialises writing removedName and listName; taken after wmu and before mu
	hasRemoved bool       // removedName exists; guarded by rmu
	listed     logList    // as in listName, or for its next write; guarded by rmu
	listSlot   int64      // bytes of its slots, 0: there is no list; guarded by rmu
	missing    []Damage   // guarded by rmu

	mu        sync.Mutex // guards everything below, and the fields of every logFile that are not constant
	logs      map[LogID]*logFile
	handles   handleCache
	nextID    LogID
	prevLog   LogID // the newest log that is not a compaction's, and how far it is known to be synced: see meta
	prevEnd   int64
	durable   Position
	removed   removed // written under rmu
	sealQueue []*logWriter
	sealing   bool // a goroutine works on sealQueue
	free      []*bufferPair
	closed    bool
	stop      chan struct{}  // closed by Close
	wg        sync.WaitGroup // sealing; Add only under mu while !closed
}

// logFile is a log in a Store's table.
type logFile struct {
	path    string
	meta    meta
	info    LogInfo
	end     int64    // entries lie before; for the log being written the end of the last checkpoint
	clip    int64    // not 0: nothing behind this offset belongs to the log, whatever the file holds
	synced  int64    // of a log without a footer: how far it is known to have been synced
	trailer *trailer // of a sealed log
	cause   error    // why info.Unreadable

	file     vfs.File // for reading, while it is in the handle cache
	refs     int      // readers
	removing bool     // Remove was called: no new readers
	deleting bool     // somebody is deleting the file
	gone     bool     // the file is deleted
	sealing  bool     // retired, and its footer is still to be written
}

// Recovered is what Open found.
type Recovered struct {
	// Unsealed are the logs without a footer, oldest first: those that were being written when the process ended. Unless
	// ReadOnly was set, Open has sealed them, if the disk let it.
	Unsealed []RecoveredLog
	// Damage lists what could not be read of the unsealed logs, within what is known to have been synced. Entries and
	// states that lay there are lost here: the caller can not deny any entry, nor trust any ledger to be unfenced, on
	// the strength of this directory alone. Damage of a log that is in the index already takes nothing away.
	Damage []Damage
	// Removed are unfinished files of an earlier process (compactions, empty logs) that were deleted.
	Removed []string
}

// RecoveredLog is an unsealed log.
type RecoveredLog struct {
	Info   LogInfo       // after sealing, if that worked
	Runs   []Run         // in order of checkpoints, each by ledger and entry; a later one wins over an earlier one
	States []LedgerState // the newest of each ledger, by ledger
	End    Position      // behind the last valid record
	Tail   int64         // bytes of valid records behind the last checkpoint: what was being flushed
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
func Open(fsys vfs.FS, dir string, o Options) (*Store, *Recovered, error) {
	o.EnsureDefaults()
	if err := o.Validate(); err != nil {
		return nil, nil, err
	}
	s := &Store{fs: fsys, dir: dir, o: o, logs: map[LogID]*logFile{}, stop: make(chan struct{})}
	s.handles.max = o.OpenFilesMax
	r, err := s.recover()
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("open entry logs in %s: %w", dir, err), s.closeFiles())
	}
	return s, r, nil
}

// parseName returns the id in a file name of a log with the given suffix.
func parseName(name, suffix string) (LogID, bool) {
	hex, ok := strings.CutSuffix(name, suffix)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(hex, 16, 32)
	if err != nil || n == 0 || strconv.FormatUint(n, 16) != hex {
		return 0, false
	}
	return LogID(n), true
}

func (s *Store) path(id LogID, suffix string) string {
	return filepath.Join(s.dir, id.String()+suffix)
}

func (s *Store) readMode() vfs.Mode { return vfs.Mode{Direct: s.o.DirectReads} }

func (s *Store) writerOptions() writerOptions {
	return writerOptions{buffered: s.o.BufferedWrites, space: reservation{s.o.PreallocateSize, s.o.LogSize}, count: &s.count}
}

// takeBuffers returns write buffers, those of a log that was finished if there are any.
func (s *Store) takeBuffers() (*bufferPair, error) {
	s.mu.Lock()
	if n := len(s.free); n > 0 {
		p := s.free[n-1]
		s.free = s.free[:n-1]
		s.mu.Unlock()
		return p, nil
	}
	s.mu.Unlock()
	return newBufferPair(s.o.BufferSize)
}

// giveBuffers keeps one pair for the next log and frees the others.
func (s *Store) giveBuffers(p *bufferPair) {
	s.mu.Lock()
	keep := len(s.free) == 0 && !s.closed
	if keep {
		s.free = append(s.free, p)
	}
	s.mu.Unlock()
	if !keep {
		if err := p.free(); err != nil {
			s.o.Logger.Warn("entry log buffers were not freed", "err", err)
		}
	}
}

// Append puts a body at the end of the current log, beginning a new log if there is none. The body's first 16 bytes are
// ledger id and entry id. It is copied. The location may be read once Checkpoint has returned nil.
func (s *Store) Append(body []byte) (Location, error) {
	s.wmu.Lock()
	defer s.wmu.Unlock()
	if s.w == nil {
		if err := s.begin(); err != nil {
			return Location{}, err
		}
	}
	loc, err := s.w.append(body)
	if err == nil {
		s.count.entries.Add(1)
		s.count.entryBytes.Add(uint64(len(body)))
	}
	return loc, err
}

// begin creates the next log. wmu is held.
func (s *Store) begin() error {
	if s.o.ReadOnly {
		return ErrReadOnly
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return ErrClosed
	}
	s.mu.Unlock()
	if err := s.makeList(); err != nil {
		return err
	}
	s.mu.Lock()
	id := s.nextID // taken at once, even if no log comes of it: a compaction may begin one at this moment
	s.nextID++
	m := meta{id: id, precedence: id, flags: flagListed, prevLog: s.prevLog, prevEnd: s.prevEnd}
	s.mu.Unlock()
	buffers, err := s.takeBuffers()
	if err != nil {
		return err
	}
	w, err := createLog(s.fs, s.path(id, logSuffix), m, buffers, s.writerOptions())
	if err == nil {
		if err = s.list(id); err != nil {
			w.stop()
			err = errors.Join(classify(err), w.f.Truncate(headerSize), w.f.Close(), s.removeUnlisted(w.path))
		}
	}
	if err != nil {
		s.giveBuffers(buffers)
		return err
	}
	l := &logFile{path: w.path, meta: w.meta, end: headerSize, info: LogInfo{
		ID: id, Precedence: id, Size: headerSize, Created: w.createdTime(), Writing: true,
	}}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.logs[id] = l
	s.prevLog, s.prevEnd = id, headerSize
	s.w, s.cur = w, l
	return nil
}

// Checkpoint makes everything appended since the last one durable, together with its run table and with the ledger
// states that changed. Runs describe exactly what was appended, best in order of ledger and entry; states are in any
// order, each ledger once. Without entries and states it does nothing. The log is closed and sealed in the background
// when it is past its size.
//
// After an error nothing since the last checkpoint is durable; call Abort and begin again.
func (s *Store) Checkpoint(runs []Run, states []LedgerState) error {
	s.wmu.Lock()
	defer s.wmu.Unlock()
	if s.w == nil {
		if len(runs) == 0 && len(states) == 0 {
			return nil
		}
		if err := s.begin(); err != nil {
			return err
		}
	}
	before := s.w.durable
	if err := s.w.checkpoint(runs, states); err != nil {
		return err
	}
	if s.w.durable == before {
		return nil
	}
	s.count.checkpoints.Add(1)
	s.mu.Lock()
	s.advanceLocked()
	s.mu.Unlock()
	if s.w.durable >= s.o.LogSize {
		s.retire()
	}
	return nil
}

// advanceLocked notes the end of the last checkpoint.
func (s *Store) advanceLocked() {
	s.cur.end, s.cur.info.Size = s.w.durable, s.w.durable
	s.prevLog, s.prevEnd = s.w.id, s.w.durable
	s.durable = Position{s.w.id, s.w.durable}
}

// Abort gives up everything appended since the last checkpoint: the locations handed out are void. If the current log
// has failed, the next Append begins a new one.
func (s *Store) Abort() error {
	s.wmu.Lock()
	defer s.wmu.Unlock()
	if s.w == nil {
		return nil
	}
	if s.w.clean() {
		s.w.rewind(s.writerOptions().space)
		return nil
	}
	// Stale records behind the last checkpoint must not be followed by newer ones: a crash would bring them back as the
	// newest. So the log ends here, even if nothing failed.
	s.retire()
	return nil
}

// Roll ends the current log even though it is not full; it is sealed in the background. Nothing may be appended since the
// last checkpoint.
func (s *Store) Roll() error {
	s.wmu.Lock()
	defer s.wmu.Unlock()
	if s.w == nil {
		return nil
	}
	if s.w.entries > 0 {
		return fmt.Errorf("roll entry log %s: %d entries were appended since the last checkpoint", s.w.id, s.w.entries)
	}
	s.retire()
	return nil
}

// retire ends the current log and hands it to the sealing goroutine. wmu is held.
func (s *Store) retire() {
	w, l := s.w, s.cur
	invariant.Check(w.durable == l.end && w.id == l.meta.id, "log %s ends at %d, its table says %d", w.path, w.durable, l.end)
	s.w, s.cur = nil, nil
	w.stop()
	s.giveBuffers(w.buffers)
	w.buffers = nil
	s.mu.Lock()
	defer s.mu.Unlock()
	l.info.Writing = false
	l.clip, l.synced, l.sealing = w.durable, w.durable, true
	s.sealQueue = append(s.sealQueue, w)
	if !s.sealing {
		s.sealing = true
		s.wg.Go(s.sealLoop)
	}
}

// Durable returns the end of the last checkpoint. The caller keeps it with its mark and hands it to Open.
func (s *Store) Durable() Position {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.durable
}

// Logs returns all logs, oldest id first, without those whose removal is pending.
func (s *Store) Logs() []LogInfo {
	s.mu.Lock()
	defer s.mu.Unlock()
	infos := make([]LogInfo, 0, len(s.logs))
	for _, l := range s.logs {
		if !l.removing {
			infos = append(infos, l.info)
		}
	}
	sortInfos(infos)
	return infos
}

// Log returns one of them, or ErrNoLog.
func (s *Store) Log(id LogID) (LogInfo, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.logs[id]
	if l == nil || l.removing {
		return LogInfo{}, fmt.Errorf("entry log %s: %w", id, ErrNoLog)
	}
	return l.info, nil
}

func sortInfos(infos []LogInfo) {
	slices.SortFunc(infos, func(a, b LogInfo) int { return cmp.Compare(a.ID, b.ID) })
}

// Close seals the current log, waits for sealing to finish and closes every file. What was appended since the last
// checkpoint is given up. The caller has ended all readers and writers.
func (s *Store) Close() error {
	s.wmu.Lock()
	if s.w != nil {
		s.retire()
	}
	s.wmu.Unlock()
	s.mu.Lock()
	if !s.closed {
		close(s.stop)
	}
	s.closed = true
	s.mu.Unlock()
	s.wg.Wait()
	return s.closeFiles()
}

func (s *Store) closeFiles() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	err := s.handles.closeAll()
	for _, p := range s.free {
		err = errors.Join(err, p.free())
	}
	s.free = nil
	return err
}
