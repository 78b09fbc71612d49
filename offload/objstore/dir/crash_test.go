package dir

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/vfs"
	"github.com/binderylog/bindery/internal/vfs/errorfs"
	"github.com/binderylog/bindery/internal/vfs/memfs"
	"github.com/binderylog/bindery/offload/objstore"
	"github.com/binderylog/bindery/offload/objstore/objstoretest"
)

// world is what a caller was told: the bytes that a key must have, or may have.
type world struct {
	fs   *memfs.FS
	s    *Store
	must map[string][]byte // acknowledged; nil: acknowledged as deleted
	may  map[string][]byte // in flight when power went: this or what must has
}

func (w *world) put(key string, data []byte) {
	if w.fs.Crashed() {
		return
	}
	w.may[key] = data
	if _, err := w.s.Put(context.Background(), key, objstore.NewBody(data), objstore.PutOptions{}); err == nil {
		w.must[key] = data
	}
}

func (w *world) remove(key string) {
	if w.fs.Crashed() {
		return
	}
	w.may[key] = nil
	if w.s.Delete(context.Background(), key) == nil {
		w.must[key] = nil
	}
}

func (w *world) upload(key string, data []byte) {
	if w.fs.Crashed() {
		return
	}
	ctx := context.Background()
	id, err := w.s.CreateUpload(ctx, key, objstore.UploadOptions{})
	if err != nil {
		return
	}
	var parts []objstore.Part
	for i, chunk := range [][]byte{data[:objstore.PartMin], data[objstore.PartMin:]} {
		p, err := w.s.PutPart(ctx, key, id, i+1, objstore.NewBody(chunk))
		if err != nil {
			return
		}
		parts = append(parts, p)
	}
	w.may[key] = data
	if _, err := w.s.CompleteUpload(ctx, key, id, parts); err == nil {
		w.must[key] = data
	}
}

func (w *world) check(t *testing.T, s *Store) {
	t.Helper()
	ctx := context.Background()
	for key, may := range w.may {
		info, err := s.Head(ctx, key)
		must, told := w.must[key]
		if err != nil {
			require.True(t, objstore.IsNotFound(err), "%s: %v", key, err)
			require.True(t, !told || must == nil || may == nil, "%s was acknowledged and is gone", key)
			continue
		}
		got := make([]byte, info.Size)
		_, err = s.GetRange(ctx, key, 0, got)
		require.NoError(t, err)
		require.Equal(t, objstore.CRC32C(got), info.CRC32C, key)
		require.True(t, told && bytes.Equal(got, must) || bytes.Equal(got, may) && may != nil, "%s: neither what was there nor what was being written", key)
	}
}

// TestPowerLossAtEveryStep cuts the power at every change of the file system: what was acknowledged is there, what was not is there whole or not at all.
func TestPowerLossAtEveryStep(t *testing.T) {
	big := objstoretest.Bytes(1, objstore.PartMin+100)
	steps := func(w *world) {
		w.put("a/b/c", []byte("one"))
		w.put("a/b/d", []byte("two"))
		w.remove("a/b/c")
		w.put("a/b/d", []byte("three, replaced"))
		w.remove("a/b/d") // the folders go with it
		w.put("a/b/e", []byte("four"))
		w.upload("u/v", big)
	}
	for n := int64(1); ; n++ {
		fsys := memfs.New("/data")
		s, err := Open(fsys, "/data/t", Options{Create: true})
		require.NoError(t, err)
		w := &world{fs: fsys, s: s, must: map[string][]byte{}, may: map[string][]byte{}}
		fsys.CrashAt(fsys.Changes() + n)
		steps(w)
		crashed := fsys.Crashed()
		for seed := range uint64(4) {
			after := fsys.CrashClone(seed, float64(seed)/3)
			s, err := Open(after, "/data/t", Options{})
			require.NoError(t, err, "change %d", n)
			w.check(t, s)
			_, err = s.Put(context.Background(), "a/b/new", objstore.NewBody([]byte("x")), objstore.PutOptions{})
			require.NoError(t, err, "change %d: usable afterwards", n)
			if !crashed {
				require.Equal(t, 4, len(w.must))
				open, err := s.ListUploads(context.Background(), "u/v")
				require.NoError(t, err)
				require.Empty(t, open)
			}
		}
		if !crashed {
			t.Logf("%d places", n-1)
			return
		}
	}
}

// TestEveryFailingStepIsAnErrorAndChangesNothingElse lets each write, sync and rename fail once.
func TestEveryFailingStepIsAnErrorAndChangesNothingElse(t *testing.T) {
	ctx := context.Background()
	for _, k := range []errorfs.Kind{errorfs.Write, errorfs.Sync, errorfs.Rename, errorfs.SyncDir, errorfs.Open} {
		t.Run(fmt.Sprint(k), func(t *testing.T) {
			met := errorfs.Sweep(t, func() vfs.FS {
				m := memfs.New("/data")
				s, err := Open(m, "/data/t", Options{Create: true})
				require.NoError(t, err)
				_, err = s.Put(ctx, "a", objstore.NewBody([]byte("old")), objstore.PutOptions{})
				require.NoError(t, err)
				return m
			}, func(n int64) errorfs.Injector { return errorfs.Nth(k, n, syscall.EIO) }, func(fsys *errorfs.FS, _ int64) {
				s := &Store{fs: fsys, root: "/data/t"}
				_, err := s.Put(ctx, "a", objstore.NewBody([]byte("new, longer")), objstore.PutOptions{IfAbsent: false})
				failed := fsys.Injected() > 0
				require.Equal(t, failed, err != nil, "%v", err)
				if err != nil {
					require.Equal(t, objstore.KindTransient, objstore.KindOf(err))
					require.ErrorIs(t, err, syscall.EIO)
				}
				info, herr := s.Head(ctx, "a")
				if herr != nil { // the fault was met here
					require.Equal(t, objstore.KindTransient, objstore.KindOf(herr))
					return
				}
				switch {
				case !failed:
					require.EqualValues(t, 11, info.Size)
				case !objstore.Unclear(err):
					require.EqualValues(t, 3, info.Size, "an error that is clear changed something")
				}
				tmp, err := fsys.List("/data/t/.bindery/tmp")
				require.NoError(t, err)
				require.Empty(t, tmp)
			})
			require.Positive(t, met)
		})
	}
}

func TestAFullDiskIsFull(t *testing.T) {
	ctx := context.Background()
	fsys := memfs.New("/data")
	s, err := Open(fsys, "/data/t", Options{Create: true})
	require.NoError(t, err)
	fsys.SetCapacity(1 << 20)
	_, err = s.Put(ctx, "a", objstore.NewBody(make([]byte, 2<<20)), objstore.PutOptions{})
	require.Equal(t, objstore.KindFull, objstore.KindOf(err), "%v", err)
	require.ErrorContains(t, err, "make room on the disk of /data/t")
	_, err = s.Head(ctx, "a")
	require.True(t, objstore.IsNotFound(err))
	_, err = s.Put(ctx, "a", objstore.NewBody(make([]byte, 1000)), objstore.PutOptions{})
	require.NoError(t, err, "nothing was left behind")
}

func TestAMissingFolderIsNotAMissingObject(t *testing.T) {
	ctx := context.Background()
	fsys := memfs.New("/data")
	_, err := Open(fsys, "/data/t", Options{})
	require.Equal(t, objstore.KindBucket, objstore.KindOf(err))
	require.ErrorContains(t, err, "/data/t is missing or empty; mount its disk, or let it be created")
	s, err := Open(fsys, "/data/t", Options{Create: true})
	require.NoError(t, err)
	_, err = s.Put(ctx, "a/b", objstore.NewBody([]byte("x")), objstore.PutOptions{})
	require.NoError(t, err)
	plain, err := Open(fsys, "/data/t", Options{})
	require.NoError(t, err)

	require.NoError(t, fsys.Rename("/data/t", "/data/away")) // unmounted, or wiped
	require.NoError(t, fsys.MkdirAll("/data/t"))
	for name, err := range map[string]error{
		"head":   second(plain.Head(ctx, "a/b")),
		"get":    second(plain.GetRange(ctx, "a/b", 0, make([]byte, 1))),
		"put":    second(plain.Put(ctx, "a/b", objstore.NewBody(nil), objstore.PutOptions{})),
		"list":   second(plain.List(ctx, "", "", 1)),
		"delete": plain.Delete(ctx, "a/b"),
		"create": second(plain.CreateUpload(ctx, "a/b", objstore.UploadOptions{})),
		"abort":  plain.AbortUpload(ctx, "a/b", "0123456789abcdef0123456789abcdef"),
	} {
		require.Equal(t, objstore.KindBucket, objstore.KindOf(err), "%s: %v", name, err)
	}
	names, err := fsys.List("/data/t")
	require.NoError(t, err)
	require.Empty(t, names, "nothing was written where a disk should be")

	_, err = s.Head(ctx, "a/b")
	require.True(t, objstore.IsNotFound(err), "one that may create it begins anew: %v", err)
	_, err = s.Put(ctx, "a/b", objstore.NewBody([]byte("y")), objstore.PutOptions{})
	require.NoError(t, err)
	_, err = plain.Head(ctx, "a/b")
	require.NoError(t, err)
}

func second[T any](_ T, err error) error { return err }

func TestForeignFoldersAndFilesAreNotTouched(t *testing.T) {
	ctx := context.Background()
	fsys := memfs.New("/data/t")
	require.NoError(t, vfs.WriteFileAtomic(fsys, "/data/t/photo", []byte("not ours")))
	_, err := Open(fsys, "/data/t", Options{Create: true})
	require.Equal(t, objstore.KindForeign, objstore.KindOf(err))
	require.ErrorContains(t, err, "give an empty folder")

	s, err := Open(fsys, "/data/u", Options{Create: true})
	require.NoError(t, err)
	require.NoError(t, vfs.WriteFileAtomic(fsys, "/data/u/alien", []byte("forty bytes that end in no footer of ours")))
	_, err = s.Head(ctx, "alien")
	require.Equal(t, objstore.KindForeign, objstore.KindOf(err))
	require.ErrorContains(t, err, "move it away")
	found, err := s.List(ctx, "", "", 10)
	require.NoError(t, err)
	require.Equal(t, []objstore.Info{{Key: "alien", Size: 41}}, found)

	require.NoError(t, vfs.WriteFileAtomic(fsys, "/data/u/.bindery/format", []byte("bindery object folder 2\n")))
	_, err = Open(fsys, "/data/u", Options{Create: true})
	require.Equal(t, objstore.KindForeign, objstore.KindOf(err))
	require.ErrorContains(t, err, "made by another version")
}

func TestFlippedBitsOfTheFooterAreSeen(t *testing.T) {
	ctx := context.Background()
	fsys := memfs.New("/data")
	s, err := Open(fsys, "/data/t", Options{Create: true})
	require.NoError(t, err)
	_, err = s.Put(ctx, "a", objstore.NewBody([]byte("body")), objstore.PutOptions{Meta: map[string]string{"m": "v"}})
	require.NoError(t, err)
	in, err := fsys.Stat("/data/t/a")
	require.NoError(t, err)
	for bit := int64(4 * 8); bit < in.Size*8; bit++ { // behind the body
		require.NoError(t, fsys.FlipBit("/data/t/a", bit))
		_, err := s.Head(ctx, "a")
		require.Equal(t, objstore.KindForeign, objstore.KindOf(err), "bit %d: %v", bit, err)
		require.NoError(t, fsys.FlipBit("/data/t/a", bit))
	}
	_, err = s.Head(ctx, "a")
	require.NoError(t, err)
}

func TestARottenPartIsNotCompleted(t *testing.T) {
	ctx := context.Background()
	fsys := memfs.New("/data")
	s, err := Open(fsys, "/data/t", Options{Create: true})
	require.NoError(t, err)
	id, err := s.CreateUpload(ctx, "a", objstore.UploadOptions{})
	require.NoError(t, err)
	p, err := s.PutPart(ctx, "a", id, 1, objstore.NewBody([]byte("body")))
	require.NoError(t, err)
	require.NoError(t, fsys.FlipBit("/data/t/.bindery/uploads/"+id+"/p00001", 3))
	_, err = s.CompleteUpload(ctx, "a", id, []objstore.Part{p})
	require.Equal(t, objstore.KindChecksum, objstore.KindOf(err))
	_, err = s.Head(ctx, "a")
	require.True(t, objstore.IsNotFound(err))
}

func TestLeftoversGo(t *testing.T) {
	ctx := context.Background()
	fsys := memfs.New("/data")
	s, err := Open(fsys, "/data/t", Options{Create: true})
	require.NoError(t, err)
	for _, name := range []string{"17e0000000-00", "not-a-time"} { // 2022
		require.NoError(t, vfs.WriteFileAtomic(fsys, s.inner("tmp", name), nil))
	}
	require.NoError(t, fsys.MkdirAll(s.inner("uploads", "00ff")))
	require.NoError(t, vfs.WriteFileAtomic(fsys, s.inner("uploads", "00ff", "p00001"), nil))
	id, err := s.CreateUpload(ctx, "a", objstore.UploadOptions{})
	require.NoError(t, err)
	_, err = Open(fsys, "/data/t", Options{})
	require.NoError(t, err)
	tmp, err := fsys.List(s.inner("tmp"))
	require.NoError(t, err)
	require.Equal(t, []string{"not-a-time"}, tmp)
	uploads, err := fsys.List(s.inner("uploads"))
	require.NoError(t, err)
	require.Equal(t, []string{id}, uploads)
}

func TestConditionalPutsOfTwoProcesses(t *testing.T) {
	ctx := context.Background()
	fsys := memfs.New("/data")
	a, err := Open(fsys, "/data/t", Options{Create: true})
	require.NoError(t, err)
	lock, err := fsys.Lock(a.inner("conditional")) // another process is in the middle of one
	require.NoError(t, err)
	_, err = a.Put(ctx, "a", objstore.NewBody(nil), objstore.PutOptions{IfAbsent: true})
	require.True(t, objstore.KindOf(err).Retriable(), "%v", err)
	require.True(t, errors.Is(err, vfs.ErrLocked))
	require.NoError(t, lock.Close())
	_, err = a.Put(ctx, "a", objstore.NewBody(nil), objstore.PutOptions{IfAbsent: true})
	require.NoError(t, err)
}
