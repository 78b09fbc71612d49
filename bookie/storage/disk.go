package storage

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/binderylog/bindery/entrylog"
	"github.com/binderylog/bindery/internal/vfs"
)

// DiskLimits say when a directory counts as full, as shares of its file system that are used.
type DiskLimits struct {
	FullAt       float64 // at or above it the directory is full. Default 0.95
	WarnAt       float64 // at or above it major compaction pauses. Default 0.90
	ResumeBelow  float64 // a full directory is writable again only below it. Default 0.92
	ReadOnlyWhen string  // "any" (default) or "all" directories full: when the bookie turns read-only
}

// EnsureDefaults fills in what is zero.
func (l *DiskLimits) EnsureDefaults() {
	if l.FullAt == 0 {
		l.FullAt = 0.95
	}
	if l.WarnAt == 0 {
		l.WarnAt = 0.90
	}
	if l.ResumeBelow == 0 {
		l.ResumeBelow = 0.92
	}
	if l.ReadOnlyWhen == "" {
		l.ReadOnlyWhen = "any"
	}
}

// Validate reports what can not work.
func (l *DiskLimits) Validate() error {
	switch {
	case !(l.FullAt > 0 && l.FullAt <= 1):
		return fmt.Errorf("disk full_at %v is not between 0 and 1", l.FullAt)
	case !(l.WarnAt > 0 && l.WarnAt <= l.FullAt):
		return fmt.Errorf("disk warn_at %v is not between 0 and full_at %v", l.WarnAt, l.FullAt)
	case !(l.ResumeBelow > 0 && l.ResumeBelow <= l.FullAt):
		return fmt.Errorf("disk resume_below %v is not between 0 and full_at %v", l.ResumeBelow, l.FullAt)
	case l.ReadOnlyWhen != "any" && l.ReadOnlyWhen != "all":
		return fmt.Errorf("disk read_only_when %q is neither any nor all", l.ReadOnlyWhen)
	}
	return nil
}

// DiskState is how full a directory is.
type DiskState uint8

// The states, from good to bad.
const (
	DiskOK DiskState = iota
	DiskWarn
	DiskFull
	DiskFailed
)

func (s DiskState) String() string {
	return [...]string{"ok", "warn", "full", "failed"}[min(s, DiskFailed)]
}

// Next returns the state of a directory that was in state prev and whose file system is used to the given share. It is
// a pure function; a failed directory stays failed.
func (l DiskLimits) Next(prev DiskState, used float64) DiskState {
	switch {
	case prev == DiskFailed:
		return DiskFailed
	case used >= l.FullAt, prev == DiskFull && used >= l.ResumeBelow:
		return DiskFull
	case used >= l.WarnAt:
		return DiskWarn
	}
	return DiskOK
}

// DirStatus describes one directory.
type DirStatus struct {
	Path  string
	ID    uint64
	State DiskState
	Used  float64 // share of the file system
	Free  int64   // bytes available, the ballast not counted
	// Reserve is the ballast: bytes that a flush or a collection gets when it finds the disk full.
	Reserve int64
	Err     error // why it failed, or could not be measured
}

// DiskReport is the outcome of CheckDisks.
type DiskReport struct {
	Dirs     []DirStatus
	ReadOnly bool   // normal adds have to be refused
	Reason   string // why, for operators
	// RecoveryRoom says that recovery adds may still be taken: some directory has room for 1.2 entry logs, the ballast
	// counted.
	RecoveryRoom bool
}

// ReadOnly says whether directories in these states make the bookie read-only, and why. A failed directory always does:
// ledgers unknown here may be its own.
func (l DiskLimits) ReadOnly(dirs []DirStatus) (bool, string) {
	full := 0
	for _, d := range dirs {
		switch d.State {
		case DiskFailed:
			return true, "ledger directory failed: " + d.Path
		case DiskFull:
			full++
			if l.ReadOnlyWhen == "any" {
				return true, "ledger directory full: " + d.Path
			}
		}
	}
	if full > 0 && full == len(dirs) {
		return true, "all ledger directories are full"
	}
	return false, ""
}

// diskLimits returns the limits in force.
func (s *Storage) diskLimits() DiskLimits {
	if l := s.limits.Load(); l != nil {
		return *l
	}
	return s.o.Disk
}

// SetDiskLimits changes the limits; the next CheckDisks goes by them.
func (s *Storage) SetDiskLimits(l DiskLimits) error {
	l.EnsureDefaults()
	if err := l.Validate(); err != nil {
		return err
	}
	s.limits.Store(&l)
	return nil
}

// CheckDisks measures every directory, moves its state, refills the ballast where there is room for it, and reports. The
// bookie calls it every few seconds.
func (s *Storage) CheckDisks() DiskReport {
	var r DiskReport
	for _, d := range s.dirs {
		st := d.checkDisk()
		r.Dirs = append(r.Dirs, st)
		r.RecoveryRoom = r.RecoveryRoom || st.State != DiskFailed && st.Free+st.Reserve >= s.o.Log.LogSize*6/5
	}
	r.ReadOnly, r.Reason = s.diskLimits().ReadOnly(r.Dirs)
	if !r.ReadOnly && s.degraded.Load() {
		r.ReadOnly, r.Reason = true, "data was lost and has not been repaired"
	}
	return r
}

func (d *dir) checkDisk() DirStatus {
	st := DirStatus{Path: d.path, ID: d.id}
	if err := d.failure(); err != nil {
		st.State, st.Err = DiskFailed, err
		return st
	}
	u, err := d.s.fs.Usage(d.cur)
	if err != nil || u.Total <= 0 {
		st.State, st.Err = d.diskState(), err
		return st
	}
	// The ballast is space that is free for those who may use it.
	ballast, err := entrylog.ReserveSize(d.s.fs, d.cur)
	if err != nil {
		st.Err = err
	}
	st.Used = 1 - float64(u.Available)/float64(u.Total)
	st.Free, st.Reserve = u.Available, ballast
	next := d.s.diskLimits().Next(d.diskState(), st.Used)
	if d.noSpace.Swap(false) && next < DiskFull {
		// A write met a full disk since the last look: it is full until there is room for the ballast again.
		next = DiskFull
	}
	if want := d.s.o.ReserveBytes; ballast < want && u.Available > 2*(want-ballast) {
		if err := entrylog.Reserve(d.s.fs, d.cur, want); err != nil && st.Err == nil {
			st.Err = err
		}
	}
	if prev := d.setDiskState(next); prev != next {
		d.s.log.Warn("ledger directory changed its state", "dir", d.path, "from", prev.String(), "to", next.String(), "used", st.Used)
		d.poke() // a flush may have waited for space
	}
	st.State = next
	return st
}

func (d *dir) diskState() DiskState {
	if d.failed.Load() {
		return DiskFailed
	}
	return DiskState(d.disk.Load())
}

func (d *dir) setDiskState(next DiskState) (prev DiskState) {
	d.diskFull.Store(next == DiskFull)
	return DiskState(d.disk.Swap(uint32(next)))
}

// useReserve gives the ballast to the file system for the sake of a write that found the disk full, and reports whether
// there was some.
func (d *dir) useReserve(what string) bool {
	n, err := entrylog.ReleaseReserve(d.s.fs, d.cur)
	if err != nil || n == 0 {
		return false
	}
	d.s.log.Warn("a full disk: the reserve is used", "dir", d.path, "for", what, "bytes", n)
	return true
}

// isPassing reports whether err says nothing bad about the disk: it is full, or the process has no file handles or memory
// left. What failed is tried again.
func isPassing(err error) bool {
	return vfs.IsNoSpace(err) || errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOMEM)
}

// markFull notes that a write found the disk full.
func (d *dir) markFull() {
	d.noSpace.Store(true)
	if prev := d.setDiskState(DiskFull); prev != DiskFull {
		d.s.log.Error("a ledger directory is full; what it could not flush stays in memory and in the journal", "dir", d.path)
	}
}
