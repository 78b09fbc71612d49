// Package dir is the object store in a folder: an object is a file, durable when Put returns.
//
//	DIR/.bindery/format       says that this is an object folder; without it nothing is read or written
//	DIR/.bindery/tmp/         files on their way in
//	DIR/.bindery/uploads/ID/  open multipart uploads: one file "upload" and one per part
//	DIR/<key>                 objects: the body, then its metadata, then a footer of 32 bytes with lengths and checksums (footer.go)
//
// A write goes to a temporary file, is synced, renamed over its key, and the folders down to it are synced. After a crash an object is there whole or
// not at all, and one whose Put returned is there. docs/formats/object-names.md has the bytes.
//
// Several processes may use one folder at once. A folder whose format file is missing, such as the empty mount point of a disk that is not mounted, is KindBucket,
// never "not found"; with Options.Create it is made anew if it is empty.
//
// Safe for concurrent use; starts no goroutine.
package dir

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/binderylog/bindery/internal/vfs"
	"github.com/binderylog/bindery/offload/objstore"
)

const (
	formatText  = "bindery object folder 1\n"
	formatMax   = 1 << 10        // also of another version
	staleTmpAge = 24 * time.Hour // far beyond the time that a write may take
	renameTries = 8              // each lost race means that another call made progress
)

// Options of a folder.
type Options struct {
	// Create makes the folder if it is missing or empty, now and whenever it is found to be.
	Create bool
	// Late opens the folder also while it can not be used, such as one that is not mounted yet: each request says why, until it is there.
	Late bool
}

// Store is an object store in a folder.
type Store struct {
	fs   vfs.FS
	root string
	o    Options

	condMu sync.Mutex // held across a conditional put: the lock file serves one caller per process
}

var _ objstore.Store = (*Store)(nil)

// Open opens the folder root.
func Open(fsys vfs.FS, root string, o Options) (*Store, error) {
	s := &Store{fs: fsys, root: filepath.Clean(root), o: o}
	switch err := s.ready("open", ""); {
	case err == nil:
		s.dropStale()
	case !o.Late:
		return nil, err
	}
	return s, nil
}

// Capabilities implements objstore.Store.
func (s *Store) Capabilities() objstore.Capabilities {
	return objstore.Capabilities{Checksums: true, StoredCRC: true, UploadCRC: true, Conditional: true, Meta: true}
}

// Close implements objstore.Store.
func (s *Store) Close() error { return nil }

func (s *Store) path(key string) string { return filepath.Join(s.root, filepath.FromSlash(key)) }

func (s *Store) inner(names ...string) string {
	return filepath.Join(append([]string{s.root, ".bindery"}, names...)...)
}

// ready says why the folder is not an object folder, or makes it one if it may.
func (s *Store) ready(op objstore.Op, key string) error {
	text, err := s.readFormat()
	switch {
	case err == nil && string(text) == formatText:
		return nil
	case errors.Is(err, errForeign), errors.Is(err, syscall.ENOTDIR):
		return &objstore.Error{Kind: objstore.KindForeign, Op: op, Key: key, Err: err,
			Hint: "it is not an object folder: give an empty folder, or move away what stands there"}
	case err == nil:
		return &objstore.Error{Kind: objstore.KindForeign, Op: op, Key: key,
			Err:  fmt.Errorf("%s holds %q", s.inner("format"), text[:min(len(text), 40)]),
			Hint: "the folder was made by another version: use that one, or another folder"}
	case !errors.Is(err, fs.ErrNotExist):
		return s.fail(op, key, err)
	}
	names, err := s.fs.List(s.root)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return s.fail(op, key, err)
	}
	for _, name := range names {
		if name != "lost+found" && name != ".bindery" {
			return &objstore.Error{Kind: objstore.KindForeign, Op: op, Key: key, Err: fmt.Errorf("%s holds files but no .bindery/format", s.root),
				Hint: "it is not an object folder: give an empty folder"}
		}
	}
	if !s.o.Create {
		return &objstore.Error{Kind: objstore.KindBucket, Op: op, Key: key, Err: fmt.Errorf("%s is missing or empty", s.root),
			Hint: "mount its disk, or let it be created"}
	}
	for _, d := range []string{s.inner("tmp"), s.inner("uploads")} {
		if err := vfs.MkdirAllSync(s.fs, d); err != nil {
			return s.fail(op, key, err)
		}
	}
	if err := vfs.WriteFileAtomic(s.fs, s.inner("format"), []byte(formatText)); err != nil {
		if _, there := s.fs.Stat(s.inner("format")); there != nil { // otherwise somebody else made it meanwhile
			return s.fail(op, key, err)
		}
	}
	return nil
}

// readFormat reads the format file. What stands there may be anything: nothing but a small regular file is opened.
func (s *Store) readFormat() ([]byte, error) {
	name := s.inner("format")
	in, err := s.fs.Stat(name)
	switch {
	case err != nil:
		return nil, err
	case in.Dir:
		return nil, fmt.Errorf("%w: %s is a folder", errForeign, name)
	case in.Special:
		return nil, fmt.Errorf("%w: %s is a pipe, a device or a socket", errForeign, name)
	case in.Size > formatMax:
		return nil, fmt.Errorf("%w: %s has %d bytes", errForeign, name, in.Size)
	}
	return vfs.ReadFile(s.fs, name)
}

// dropStale removes what writers of long ago left. What can not be removed now is tried again at the next start.
func (s *Store) dropStale() {
	names, err := s.fs.List(s.inner("tmp"))
	if err != nil {
		return
	}
	for _, name := range names {
		stamp, _, _ := strings.Cut(name, "-")
		if ms, err := strconv.ParseInt(stamp, 16, 64); err == nil && time.Since(time.UnixMilli(ms)) > staleTmpAge {
			_ = s.fs.Remove(s.inner("tmp", name))
		}
	}
	ids, err := s.fs.List(s.inner("uploads"))
	if err != nil {
		return
	}
	for _, id := range ids { // a crash while one was dropped leaves parts that belong to nothing
		if _, err := s.fs.Stat(s.inner("uploads", id, uploadFile)); errors.Is(err, fs.ErrNotExist) {
			_ = s.dropUpload(id)
		}
	}
}

// fail classifies an error of the file system.
func (s *Store) fail(op objstore.Op, key string, err error) error {
	e := &objstore.Error{Kind: objstore.KindTransient, Op: op, Key: key, Err: err}
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		e.Kind = objstore.KindCanceled
	case vfs.IsNoSpace(err):
		e.Kind, e.Hint = objstore.KindFull, "make room on the disk of "+s.root
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		e.Kind, e.Hint = objstore.KindDenied, "let this user write to "+s.root
	case errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.EISDIR), errors.Is(err, syscall.ENOTEMPTY), errors.Is(err, syscall.EEXIST):
		e.Kind = objstore.KindMisuse // a key would be a folder and an object
	case errors.Is(err, syscall.ENAMETOOLONG):
		e.Kind = objstore.KindMisuse
	}
	return e
}

// absent answers for a file that is not there: not found, unless it is the folder that is missing.
func (s *Store) absent(op objstore.Op, key string, k objstore.Kind, cause error) error {
	if err := s.ready(op, key); err != nil {
		return err
	}
	return &objstore.Error{Kind: k, Op: op, Key: key, Err: cause}
}

func random() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // does not fail
	return hex.EncodeToString(b[:])
}

// writeTmp writes chunks and footer to a new temporary file and syncs it.
func (s *Store) writeTmp(op objstore.Op, key string, write func(vfs.File) (footer, error)) (tmp string, err error) {
	tmp = s.inner("tmp", fmt.Sprintf("%x-%s", time.Now().UnixMilli(), random()))
	mode := vfs.Mode{Write: true, Create: true, Exclusive: true}
	f, err := s.fs.Open(tmp, mode)
	if errors.Is(err, fs.ErrNotExist) {
		if err := s.ready(op, key); err != nil {
			return "", err
		}
		if err := s.fs.MkdirAll(s.inner("tmp")); err != nil {
			return "", s.fail(op, key, err)
		}
		f, err = s.fs.Open(tmp, mode)
	}
	if err != nil {
		return "", s.fail(op, key, err)
	}
	foot, err := write(f)
	if err == nil {
		_, err = f.WriteAt(foot.encode(), foot.size)
	}
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		_ = s.fs.Remove(tmp) // otherwise it goes when it is stale
		var ours *objstore.Error
		if errors.As(err, &ours) {
			return "", err
		}
		return "", s.fail(op, key, err)
	}
	return tmp, nil
}

// publish renames tmp to the file of key and makes the name durable.
func (s *Store) publish(op objstore.Op, key, tmp string) error {
	path := s.path(key)
	err := s.fs.Rename(tmp, path)
	for range renameTries { // a delete may remove an empty folder between these two steps
		if err == nil {
			break
		}
		if errors.Is(err, syscall.EISDIR) || errors.Is(err, syscall.ENOTEMPTY) || errors.Is(err, syscall.EEXIST) {
			if s.fs.Remove(path) != nil { // an empty folder that a crash left gives way
				break
			}
		} else if errors.Is(err, fs.ErrNotExist) {
			if err = s.fs.MkdirAll(filepath.Dir(path)); err != nil {
				break
			}
		} else {
			break
		}
		err = s.fs.Rename(tmp, path)
	}
	if err != nil {
		_ = s.fs.Remove(tmp) // otherwise it goes when it is stale
		return s.fail(op, key, err)
	}
	if err := s.syncFolders(key); err != nil {
		e := s.fail(op, key, err)
		var ours *objstore.Error
		if errors.As(e, &ours) {
			ours.MaybeDone = true
		}
		return e
	}
	return nil
}

// syncFolders makes the names from the root to key durable. All of them: another process may have made a folder and not synced it yet. A folder that
// is gone was emptied meanwhile; its parent says so.
func (s *Store) syncFolders(key string) error {
	for d := filepath.Dir(s.path(key)); ; d = filepath.Dir(d) {
		if err := s.fs.SyncDir(d); err != nil && (!errors.Is(err, fs.ErrNotExist) || d == s.root) {
			return err
		}
		if d == s.root {
			return nil
		}
	}
}

// Put implements objstore.Objects.
func (s *Store) Put(ctx context.Context, key string, body objstore.Body, o objstore.PutOptions) (objstore.Info, error) {
	if err := objstore.CheckPut(key, body, o.Meta); err != nil {
		return objstore.Info{}, err
	}
	if err := ctx.Err(); err != nil {
		return objstore.Info{}, s.fail(objstore.OpPut, key, err)
	}
	foot := footer{size: int64(len(body.Data)), crc: body.CRC32C, modified: time.Now().UnixMilli(), meta: maps.Clone(o.Meta)}
	tmp, err := s.writeTmp(objstore.OpPut, key, func(f vfs.File) (footer, error) {
		_, err := f.WriteAt(body.Data, 0)
		return foot, err
	})
	if err != nil {
		return objstore.Info{}, err
	}
	if o.IfAbsent {
		err = s.publishIfAbsent(key, tmp)
	} else {
		err = s.publish(objstore.OpPut, key, tmp)
	}
	if err != nil {
		return objstore.Info{}, err
	}
	return foot.info(key), nil
}

// publishIfAbsent publishes unless key is taken. Conditional puts exclude each other, in all processes.
func (s *Store) publishIfAbsent(key, tmp string) error {
	s.condMu.Lock()
	defer s.condMu.Unlock()
	lock, err := s.fs.Lock(s.inner("conditional"))
	if err == nil {
		defer lock.Close()
		if _, err = s.fs.Stat(s.path(key)); err == nil {
			err = &objstore.Error{Kind: objstore.KindExists, Op: objstore.OpPut, Key: key, Err: fs.ErrExist}
		} else if errors.Is(err, fs.ErrNotExist) {
			return s.publish(objstore.OpPut, key, tmp)
		}
	}
	_ = s.fs.Remove(tmp) // otherwise it goes when it is stale
	var ours *objstore.Error
	if errors.As(err, &ours) {
		return err
	}
	return s.fail(objstore.OpPut, key, err) // another process is at it: transient
}

// open opens an object and reads its footer.
func (s *Store) open(ctx context.Context, op objstore.Op, key string) (vfs.File, footer, error) {
	if err := ctx.Err(); err != nil {
		return nil, footer{}, s.fail(op, key, err)
	}
	f, foot, err := openFooter(s.fs, s.path(key))
	switch {
	case err == nil:
		return f, foot, nil
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR), errors.Is(err, errFolder):
		return nil, footer{}, s.absent(op, key, objstore.KindNotFound, errors.New("no such object"))
	case errors.Is(err, errForeign):
		return nil, footer{}, &objstore.Error{Kind: objstore.KindForeign, Op: op, Key: key, Err: err,
			Hint: "the file was not written by bindery, or is damaged: move it away, then repair what it should be"}
	}
	return nil, footer{}, s.fail(op, key, err)
}

// GetRange implements objstore.Objects.
func (s *Store) GetRange(ctx context.Context, key string, offset int64, dst []byte) (objstore.Info, error) {
	if err := objstore.CheckGet(key, offset, dst); err != nil {
		return objstore.Info{}, err
	}
	f, foot, err := s.open(ctx, objstore.OpGet, key)
	if err != nil {
		return objstore.Info{}, err
	}
	defer f.Close()
	if foot.size-int64(len(dst)) < offset {
		return objstore.Info{}, &objstore.Error{Kind: objstore.KindRange, Op: objstore.OpGet, Key: key,
			Err: fmt.Errorf("%d bytes at %d asked for, the object has %d", len(dst), offset, foot.size)}
	}
	if n, err := f.ReadAt(dst, offset); n < len(dst) { // the footer comes after these bytes, so an end of file is no excuse
		return objstore.Info{}, s.fail(objstore.OpGet, key, fmt.Errorf("read %d of %d bytes: %w", n, len(dst), err))
	}
	return foot.info(key), nil
}

// Head implements objstore.Objects.
func (s *Store) Head(ctx context.Context, key string) (objstore.Info, error) {
	if err := objstore.CheckName(objstore.OpHead, key); err != nil {
		return objstore.Info{}, err
	}
	f, foot, err := s.open(ctx, objstore.OpHead, key)
	if err != nil {
		return objstore.Info{}, err
	}
	return foot.info(key), f.Close()
}

// Delete implements objstore.Objects.
func (s *Store) Delete(ctx context.Context, key string) error {
	if err := objstore.CheckName(objstore.OpDelete, key); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return s.fail(objstore.OpDelete, key, err)
	}
	path := s.path(key)
	in, err := s.fs.Stat(path)
	switch {
	case err == nil && in.Dir: // a folder of other objects
		return nil
	case err == nil:
		err = s.fs.Remove(path)
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		err = s.ready(objstore.OpDelete, key)
		if err != nil {
			return err
		}
	}
	if err != nil {
		return s.fail(objstore.OpDelete, key, err)
	}
	// Also if it was absent: an earlier call may have removed it and not come as far as this.
	if err := s.syncNearest(filepath.Dir(path)); err != nil {
		return &objstore.Error{Kind: objstore.KindTransient, Op: objstore.OpDelete, Key: key, MaybeDone: true, Err: err}
	}
	for d := filepath.Dir(path); d != s.root && s.fs.Remove(d) == nil; d = filepath.Dir(d) {
		continue // folders go when they are empty; one that is not stays
	}
	return nil
}

// syncNearest makes the removal of names in d durable; if d itself is gone, that it is.
func (s *Store) syncNearest(d string) error {
	for {
		err := s.fs.SyncDir(d)
		if err == nil || d == s.root || !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
			return err
		}
		d = filepath.Dir(d)
	}
}
