package entrylog

import (
	"container/list"
	"errors"
	"fmt"
	"io/fs"

	"github.com/binderylog/bindery/internal/corrupt"
	"github.com/binderylog/bindery/internal/vfs"
)

// handleCache keeps read handles open, the most recently used first. The store's mu guards it.
type handleCache struct {
	max   int
	order list.List // of *logFile
	at    map[*logFile]*list.Element
}

// usedLocked moves l to the front.
func (h *handleCache) usedLocked(l *logFile) {
	if e := h.at[l]; e != nil {
		h.order.MoveToFront(e)
		return
	}
	if h.at == nil {
		h.at = map[*logFile]*list.Element{}
	}
	h.at[l] = h.order.PushFront(l)
}

// evictLocked takes handles that nobody uses out of the cache until it is small enough, for the caller to close.
func (h *handleCache) evictLocked() (victims []vfs.File) {
	for e := h.order.Back(); e != nil && h.order.Len() > h.max; {
		l, before := e.Value.(*logFile), e.Prev()
		if l.refs == 0 {
			victims = append(victims, h.dropLocked(l))
		}
		e = before
	}
	return victims
}

// dropLocked takes l's handle out of the cache; nil if it is not there.
func (h *handleCache) dropLocked(l *logFile) vfs.File {
	e := h.at[l]
	if e == nil {
		return nil
	}
	h.order.Remove(e)
	delete(h.at, l)
	f := l.file
	l.file = nil
	return f
}

func (h *handleCache) closeAll() (err error) {
	for e := h.order.Front(); e != nil; e = h.order.Front() {
		err = errors.Join(err, h.dropLocked(e.Value.(*logFile)).Close())
	}
	return err
}

// view is a log pinned for reading: while it lasts, the file is open and not deleted.
type view struct {
	l    *logFile
	f    vfs.File
	meta meta
	end  int64 // entries lie before
}

// pin gets a log for reading. release must follow.
func (s *Store) pin(id LogID) (view, error) {
	s.mu.Lock()
	l := s.logs[id]
	switch {
	case s.closed:
		s.mu.Unlock()
		return view{}, ErrClosed
	case l == nil || l.removing:
		s.mu.Unlock()
		return view{}, fmt.Errorf("entry log %s: %w", id, ErrNoLog)
	case l.info.Unreadable:
		s.mu.Unlock()
		return view{}, corrupt.New(l.path, 0, "entry log", l.cause)
	}
	l.refs++
	v := view{l: l, f: l.file, meta: l.meta, end: l.end}
	if v.f != nil {
		s.handles.usedLocked(l)
	}
	s.mu.Unlock()
	if v.f == nil {
		if err := s.openHandle(&v); err != nil {
			s.release(v)
			return view{}, err
		}
	}
	return v, nil
}

// openHandle opens the file outside the lock; of two readers that do it at once, one wins.
func (s *Store) openHandle(v *view) error {
	f, err := s.fs.Open(v.l.path, s.readMode())
	if errors.Is(err, fs.ErrNotExist) {
		return corrupt.New(v.l.path, 0, "entry log", err) // it was there, and nobody removed it through us
	}
	if err != nil {
		return fmt.Errorf("open entry log %s: %w", v.l.meta.id, err)
	}
	s.mu.Lock()
	loser := f
	if v.l.file == nil {
		v.l.file, loser = f, nil
	}
	v.f = v.l.file
	s.handles.usedLocked(v.l)
	victims := s.handles.evictLocked()
	s.mu.Unlock()
	if loser != nil {
		victims = append(victims, loser)
	}
	for _, f := range victims {
		_ = f.Close() // read only: nothing can be lost
	}
	return nil
}

// release ends a pin. The last reader of a removed log deletes it.
func (s *Store) release(v view) {
	s.mu.Lock()
	v.l.refs--
	last := v.l.refs == 0 && v.l.removing && !v.l.gone
	s.mu.Unlock()
	if last {
		if err := s.deleteFile(v.l, false); err != nil {
			s.o.Logger.Warn("an entry log was not deleted; the next garbage collection tries again", "file", v.l.path, "err", err)
		}
	}
}
