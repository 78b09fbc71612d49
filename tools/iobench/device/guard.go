package device

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/binderylog/bindery/internal/vfs"
	"github.com/binderylog/bindery/tools/iobench/engine"
)

// RefusedError says that a run would mislead or do harm, and what to do.
type RefusedError struct {
	What string
	Hint string
}

func (e *RefusedError) Error() string {
	if e.Hint == "" {
		return e.What
	}
	return e.What + "; " + e.Hint
}

// Guard is what a run needs to know before it may write.
type Guard struct {
	NeedBytes       int64 // of space
	AllowUnsuitable bool  // tmpfs, overlay, network, loop
	AllowLive       bool  // a bookie may be using the disk
}

// Check tests the guards and fills in what only trying can tell: whether there is direct I/O. It leaves nothing behind.
func (f *Facts) Check(g Guard) error {
	if err := f.checkKind(g); err != nil {
		return err
	}
	if !g.AllowLive {
		if who := f.Live(); who != "" {
			return &RefusedError{fmt.Sprintf("%s: %s; measuring would slow it down and mislead", f.Dir, who), "stop it, or use `iobench live` (--allow-live measures all the same)"}
		}
	}
	if f.FileSystem.AvailableBytes < g.NeedBytes {
		return &RefusedError{fmt.Sprintf("%s has %d MiB left and the test files need %d MiB", f.Dir, f.FileSystem.AvailableBytes>>20, g.NeedBytes>>20), "free some, or ask for smaller files (--file-mib)"}
	}
	return f.tryWriting()
}

// checkKind refuses what is no disk, or stamps it.
func (f *Facts) checkKind(g Guard) error {
	why := f.unsuitable()
	if why == "" {
		return nil
	}
	if !g.AllowUnsuitable {
		where := f.Dir
		if f.FileSystem.Type != rawType {
			where += " is on " + f.FileSystem.Type
		}
		return &RefusedError{where + ": " + why, "--allow-unsuitable measures it all the same"}
	}
	f.NotRepresentative = why
	return nil
}

// unsuitable says why this file system's figures mean nothing for a bookie.
func (f *Facts) unsuitable() string {
	if why := vfs.UnsuitableFS(f.FileSystem.Type); why != "" {
		return why
	}
	switch f.Kind {
	case "loop":
		return "its disk is a file of another file system (loop device)"
	case "ram":
		return "its disk is memory"
	case "network":
		return "its disk is somewhere else on a network"
	}
	return ""
}

// tryWriting finds out whether files can be made here and how direct I/O has to be aligned.
func (f *Facts) tryWriting() error {
	direct, align, err := tryFile(f.Dir)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%s: no permission to make files here: run as the user that will own the data", f.Dir)
	case isReadOnly(err):
		return fmt.Errorf("%s: the file system is mounted read-only", f.Dir)
	case vfs.IsNoSpace(err):
		return &RefusedError{f.Dir + " is full", "free some space"}
	}
	f.FileSystem.DirectIO, f.FileSystem.DirectIOAlign = direct, align
	return err
}

// tryFile makes a file and writes one block to it, directly if that is possible.
func tryFile(dir string) (direct bool, align int, err error) {
	files := OS()
	first, name, remove, err := openTemp(files, dir)
	if err != nil {
		return false, 0, err
	}
	defer first.Close()
	second, err := files.FS.Open(name, vfs.Mode{Write: true, Direct: true})
	if rerr := remove(); err == nil {
		err = rerr
	}
	if errors.Is(err, vfs.ErrNoDirectIO) {
		_, err = first.WriteAt(make([]byte, vfs.Align), 0)
		return false, 0, err
	}
	if err != nil {
		return false, 0, err
	}
	defer second.Close()
	if _, err = second.WriteAt(vfs.AlignedBytes(vfs.Align), 0); isInvalid(err) {
		return false, 0, nil
	}
	return err == nil, directAlign(first), err
}

// openTemp makes a file whose name is taken away by remove, if it has one at all.
func openTemp(files Files, dir string) (f vfs.File, name string, remove func() error, err error) {
	if u, ok := any(files).(engine.Unnamed); ok {
		f, name, err = u.OpenUnnamed(dir)
		if !errors.Is(err, errors.ErrUnsupported) {
			return f, name, func() error { return nil }, err
		}
	}
	name = filepath.Join(dir, fmt.Sprintf("%sprobe-%d", engine.TempPrefix, os.Getpid()))
	f, err = files.FS.Open(name, vfs.Mode{Write: true, Create: true, Exclusive: true})
	return f, name, func() error { return files.Remove(name) }, err
}

// lockName is the file that a running bookie holds locked, in each of its directories.
const lockName = "LOCK"

// Live says that a bookie is at work here, or "".
func (f *Facts) Live() string {
	for _, dir := range []string{f.Dir, filepath.Join(f.Dir, "current")} {
		name := filepath.Join(dir, lockName)
		if _, err := os.Stat(name); err != nil {
			continue
		}
		if isLocked(name) {
			return "a running bookie has its data here"
		}
	}
	return f.sys.userOf(f)
}

// userOf looks for a bookie, ours or Apache's, that has files of this disk open. It sees as much as its user may.
func (s System) userOf(f *Facts) string {
	for _, pid := range s.names("proc") {
		if pid == "" || pid[0] < '0' || pid[0] > '9' {
			continue
		}
		command := strings.ReplaceAll(s.text("proc", pid, "cmdline"), "\x00", " ")
		program, _, _ := strings.Cut(command, " ")
		ours := filepath.Base(program) == "bindery" && (strings.Contains(command, " run") || strings.Contains(command, " standalone"))
		if !ours && !strings.Contains(command, "org.apache.bookkeeper") {
			continue
		}
		for _, fd := range s.names("proc", pid, "fd") {
			info, err := os.Stat(filepath.Join("/", s.Root, "proc", pid, "fd", fd))
			if err != nil || !info.Mode().IsRegular() {
				continue
			}
			if s.diskOf(fileNumber(info)) == f.Number {
				return fmt.Sprintf("process %s (%s) is a bookie with files on this disk", pid, filepath.Base(program))
			}
		}
	}
	return ""
}

// diskOf is the number of the disk that holds a partition; of a disk, its own.
func (s System) diskOf(number string) string {
	path, err := filepath.EvalSymlinks(filepath.Join("/", s.Root, "sys/dev/block", number))
	if err != nil {
		return number
	}
	f := Facts{sys: s}
	if s.text(f.rel(path), "partition") != "" {
		if n := s.text(f.rel(filepath.Dir(path)), "dev"); n != "" {
			return n
		}
	}
	return number
}

// Lock makes sure that one run at a time measures this disk. It leaves no file: the lock dies with the process.
func (f *Facts) Lock(ctx context.Context) (io.Closer, error) {
	l, err := lockDisk(ctx, f.Number)
	if errors.Is(err, vfs.ErrLocked) {
		return nil, &RefusedError{fmt.Sprintf("%s: another iobench is measuring this disk", f), "wait for it: two at once measure each other"}
	}
	return l, err
}

// CheckRaw refuses a device that anything uses, that can not be written, or that the guard does not allow.
func (f *Facts) CheckRaw(g Guard) error {
	l, err := f.HoldRaw(g)
	if err != nil {
		return err
	}
	return l.Close()
}

// HoldRaw is CheckRaw, and has the kernel keep the device for us until the returned is closed.
func (f *Facts) HoldRaw(g Guard) (io.Closer, error) {
	if err := f.checkKind(g); err != nil {
		return nil, err
	}
	if ro := f.sys.flag(f.sysDir, "ro"); ro != nil && *ro {
		return nil, &RefusedError{f.Dir + " is read-only", "look at `blockdev --getro`, or at a switch on the device"}
	}
	if f.SizeBytes < g.NeedBytes {
		return nil, &RefusedError{fmt.Sprintf("%s has %d KiB, a run needs %d MiB", f.Dir, f.SizeBytes>>10, g.NeedBytes>>20), "name a whole disk"}
	}
	if err := f.unused(); err != nil {
		return nil, err
	}
	return exclusive(f.Dir)
}

func (f *Facts) unused() error {
	for _, m := range f.sys.mounts() {
		if f.sys.diskOf(m.number) == f.Number {
			return &RefusedError{fmt.Sprintf("%s is in use: mounted at %s", f.Dir, m.point), "unmount it, if you mean this disk"}
		}
	}
	var holders []string
	holders = append(holders, f.sys.names(f.sysDir, "holders")...)
	for _, part := range f.sys.names(f.sysDir) {
		if strings.HasPrefix(part, f.Name) {
			holders = append(holders, f.sys.names(f.sysDir, part, "holders")...)
		}
	}
	if len(holders) > 0 {
		return &RefusedError{fmt.Sprintf("%s is in use: part of %s", f.Dir, strings.Join(holders, ", ")), "take it out of there first"}
	}
	for line := range strings.Lines(f.sys.text("proc/swaps")) {
		if name, _, _ := strings.Cut(line, " "); strings.HasPrefix(name, "/") {
			if info, err := os.Stat(strings.Fields(name)[0]); err == nil && f.sys.diskOf(deviceNumber(info)) == f.Number {
				return &RefusedError{fmt.Sprintf("%s is in use: it holds swap space", f.Dir), "swapoff first, if you mean this disk"}
			}
		}
	}
	if who := f.sys.loopOver(f); who != "" {
		return &RefusedError{fmt.Sprintf("%s is in use: %s lies on it", f.Dir, who), "detach that first (losetup -d)"}
	}
	if who := f.sys.openBy(f); who != "" {
		return &RefusedError{fmt.Sprintf("%s is in use: %s has it open", f.Dir, who), "end that first"}
	}
	return nil
}

// loopOver names a loop device whose content is this disk or a part of it: the kernel counts it as no holder, and does not
// keep the disk for it.
func (s System) loopOver(f *Facts) string {
	for _, name := range s.names("sys/block") {
		backing := s.text("sys/block", name, "loop/backing_file")
		if backing == "" {
			continue
		}
		if info, err := os.Stat(backing); err == nil && info.Mode()&os.ModeDevice != 0 && s.diskOf(deviceNumber(info)) == f.Number {
			return name
		}
	}
	return ""
}

// openBy names a process that has the disk or a part of it open: a virtual machine, a database, does not ask the kernel for
// sole use. It sees as much as its user may.
func (s System) openBy(f *Facts) string {
	for _, pid := range s.names("proc") {
		if pid == "" || pid[0] < '0' || pid[0] > '9' || pid == strconv.Itoa(os.Getpid()) {
			continue
		}
		for _, fd := range s.names("proc", pid, "fd") {
			info, err := os.Stat(filepath.Join("/", s.Root, "proc", pid, "fd", fd))
			if err != nil || info.Mode()&os.ModeDevice == 0 || info.Mode()&os.ModeCharDevice != 0 {
				continue
			}
			if s.diskOf(deviceNumber(info)) == f.Number {
				return fmt.Sprintf("process %s (%s)", pid, clean(s.text("proc", pid, "comm")))
			}
		}
	}
	return ""
}
