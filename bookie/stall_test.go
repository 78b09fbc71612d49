package bookie

import (
	"strings"
	"sync"

	"github.com/binderylog/bindery/internal/vfs"
)

// stallFS is a file system whose writes to some files can be made to wait.
type stallFS struct {
	vfs.FS
	part string // of the name

	mu      sync.Mutex
	cond    sync.Cond
	stalled bool
}

func newStallFS(fs vfs.FS, part string) *stallFS {
	s := &stallFS{FS: fs, part: part}
	s.cond.L = &s.mu
	return s
}

// stall makes writes wait from now on, or lets them go.
func (s *stallFS) stall(on bool) {
	s.mu.Lock()
	s.stalled = on
	s.mu.Unlock()
	s.cond.Broadcast()
}

func (s *stallFS) wait() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.stalled {
		s.cond.Wait()
	}
}

func (s *stallFS) Open(name string, m vfs.Mode) (vfs.File, error) {
	f, err := s.FS.Open(name, m)
	if err != nil || !strings.Contains(name, s.part) {
		return f, err
	}
	return &stallFile{File: f, fs: s}, nil
}

type stallFile struct {
	vfs.File
	fs *stallFS
}

func (f *stallFile) WriteAt(p []byte, off int64) (int, error) {
	f.fs.wait()
	return f.File.WriteAt(p, off)
}

func (f *stallFile) Sync() error {
	f.fs.wait()
	return f.File.Sync()
}
