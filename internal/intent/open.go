package intent

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/binderylog/bindery/internal/corrupt"
	"github.com/binderylog/bindery/internal/vfs"
)

// Open opens the log in dir, creating it if it does not exist. It fails with vfs.ErrLocked if it is open already, with
// a *corrupt.Error if it is damaged (see Options.Salvage), with ErrNewerFormat if a later version wrote it.
func Open(dir string, o Options) (Log, error) { return open(vfs.OS(), openWAL, dir, o) }

// OpenVFS is Open on a file system other than the operating system's.
func OpenVFS(fsys vfs.FS, dir string, o Options) (Log, error) {
	return open(fsys, openFile(fsys), dir, o)
}

func open(fsys vfs.FS, opener opener, dir string, o Options) (_ Log, err error) {
	o.EnsureDefaults()
	if err := vfs.MkdirAllSync(fsys, dir); err != nil {
		return nil, fmt.Errorf("open intent log: %w", err)
	}
	lock, err := takeLock(fsys, dir, o.Holder)
	if err != nil {
		return nil, fmt.Errorf("open intent log: %w", err)
	}
	l := &log{o: o, open: opener, lock: lock, pending: map[uint64][]byte{}}
	if err := l.recover(fsys, dir); err != nil {
		return nil, fmt.Errorf("open intent log: %w", errors.Join(err, lock.Close()))
	}
	l.start()
	return l, nil
}

// takeLock locks a log's directory. Who holds it stands in the lock's file, for people: what is in it decides nothing.
func takeLock(fsys vfs.FS, dir, holder string) (io.Closer, error) {
	name := filepath.Join(dir, lockName)
	lock, err := fsys.Lock(name)
	switch {
	case errors.Is(err, vfs.ErrLocked):
		if who := readHolder(fsys, name); who != "" {
			err = fmt.Errorf("%w: %s has it open", err, who)
		}
		return nil, err
	case err != nil:
		return nil, err
	}
	if holder != "" {
		_ = writeHolder(fsys, name, holder) // without it the error says less
	}
	return lock, nil
}

// holderMax bounds what is said of a holder.
const holderMax = 256

func readHolder(fsys vfs.FS, name string) string {
	info, err := fsys.Stat(name)
	if err != nil || info.Size > holderMax {
		return ""
	}
	b, err := vfs.ReadFile(fsys, name)
	if err != nil || !utf8.Valid(b) {
		return ""
	}
	return strings.TrimSpace(string(b))
}

func writeHolder(fsys vfs.FS, name, holder string) error {
	f, err := fsys.Open(name, vfs.Mode{Write: true})
	if err != nil {
		return err
	}
	b := []byte(holder[:min(len(holder), holderMax-1)] + "\n")
	if err = f.Truncate(0); err == nil {
		_, err = f.WriteAt(b, 0)
	}
	return errors.Join(err, f.Close())
}

// recover brings the directory into the state of a log that was closed well and loads it.
func (l *log) recover(fsys vfs.FS, dir string) (err error) {
	if l.layout, err = readLayout(fsys, dir); err != nil {
		return err
	}
	if err := l.layout.clean(); err != nil {
		return err
	}
	g := l.layout.current()
	if g == 0 {
		l.generation, l.nextID = 1, 1
		return l.buildAndOpen()
	}
	l.generation = g
	file, data, err := l.layout.load(g)
	var s scanned
	if err == nil {
		s = scan(file, g, data)
		err = s.newer
	} else if l.o.Salvage && corrupt.Is(err) { // any other error may be gone at the next try
		s.damage, err = []error{err}, nil
	}
	if err != nil {
		return err
	}
	l.recovered.Records = len(s.records)
	l.apply(s.records)
	if len(s.damage) > 0 {
		return l.salvage(s)
	}
	if s.end < int64(len(data)) {
		l.recovered.Cut = &Cut{Path: file, Offset: s.end, Bytes: int64(len(data)) - s.end, Reason: s.reason}
		l.o.Logger.Warn("cut a torn tail off an intent log", "file", file, "offset", s.end, "bytes", l.recovered.Cut.Bytes, "reason", s.reason)
	}
	if err := cut(fsys, file, s.end, s.end < int64(len(data))); err != nil {
		return err
	}
	l.index, l.size = uint64(len(s.records)), s.end
	return l.openAppender()
}

// apply replays records onto the pending intents.
func (l *log) apply(records []record) {
	for i := range records {
		r := &records[i]
		switch r.kind {
		case kindHead:
			l.nextID = max(l.nextID, r.id)
		case kindIntent:
			l.pending[r.id] = append([]byte(nil), r.data...) // the file's bytes are not kept
			l.pendingBytes += int64(len(r.data))
			l.nextID = max(l.nextID, r.id+1)
		case kindDone:
			l.finish(r.id)
		}
	}
}

func (l *log) finish(id uint64) {
	l.pendingBytes -= int64(len(l.pending[id]))
	delete(l.pending, id)
}

// salvage replaces a damaged generation by one with what could be read of it.
func (l *log) salvage(s scanned) error {
	if !l.o.Salvage {
		return s.damage[0]
	}
	damaged := l.generation
	l.recovered.Damage = s.damage
	for _, err := range s.damage {
		l.o.Logger.Error("intent log is damaged; going on with what can be read", "error", err)
	}
	// Ids that only damaged records named must not be given out again. A file holds no more intents than its length
	// allows, and far fewer than this.
	l.nextID += 1 << 32
	l.generation++
	if err := l.buildAndOpen(); err != nil {
		return err
	}
	aside, err := l.layout.setAside(damaged)
	if err != nil {
		return errors.Join(err, l.app.close())
	}
	l.recovered.SetAside = aside
	return nil
}

// buildAndOpen makes the file of the current generation and opens it.
func (l *log) buildAndOpen() error {
	records := l.snapshot()
	size, _, err := l.layout.build(l.generation, records)
	if err != nil {
		return err
	}
	l.index, l.size = uint64(len(records)), size
	return l.openAppender()
}

func (l *log) openAppender() (err error) {
	l.app, err = l.open(l.layout.path(l.generation), l.index, l.size)
	l.durable = l.index // synced by build or cut
	return err
}

// snapshot returns the records of a new file: the head, which says how many it is synced with, and the pending intents,
// oldest first.
func (l *log) snapshot() []record {
	pending := l.pendingLocked()
	records := make([]record, 1, len(pending)+1)
	records[0] = record{
		kind: kindHead, generation: l.generation, index: 1, id: l.nextID, data: headData(uint64(len(pending) + 1)),
	}
	for _, p := range pending {
		records = append(records, record{
			kind: kindIntent, generation: l.generation, index: uint64(len(records) + 1), durable: 1, id: p.ID, data: p.Data,
		})
	}
	return records
}
