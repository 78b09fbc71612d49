//go:build unix

package dir

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/vfs"
	"github.com/binderylog/bindery/offload/objstore"
)

// TestAPipeInTheFolderHoldsNobodyUp: opening it would wait for a writer, and a device has no end.
func TestAPipeInTheFolderHoldsNobodyUp(t *testing.T) {
	root := t.TempDir()
	s, err := Open(vfs.OS(), root, Options{Create: true})
	require.NoError(t, err)
	require.NoError(t, syscall.Mkfifo(filepath.Join(root, "pipe"), 0o600))
	require.NoError(t, os.Symlink("/dev/zero", filepath.Join(root, "zero")))
	for _, key := range []string{"pipe", "zero"} {
		_, err = s.Head(t.Context(), key)
		require.Equal(t, objstore.KindForeign, objstore.KindOf(err), "%v", err)
		_, err = s.GetRange(t.Context(), key, 0, make([]byte, 1))
		require.Equal(t, objstore.KindForeign, objstore.KindOf(err), "%v", err)
	}
	list, err := s.List(t.Context(), "", "", 0)
	require.NoError(t, err)
	require.Len(t, list, 2, "an operator sees them")
	for _, key := range []string{"pipe", "zero"} {
		require.NoError(t, s.Delete(t.Context(), key))
	}
}

// intruders are what may stand where a file of ours should be.
func intruders(t *testing.T) map[string]func(path string) {
	return map[string]func(path string){
		"pipe":   func(path string) { require.NoError(t, syscall.Mkfifo(path, 0o600)) },
		"device": func(path string) { require.NoError(t, os.Symlink("/dev/zero", path)) },
		"folder": func(path string) { require.NoError(t, os.MkdirAll(filepath.Join(path, "in it"), 0o700)) },
		"socket": func(path string) {
			t.Chdir(t.TempDir()) // the name of a socket has to be short
			l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", "s")
			require.NoError(t, err)
			l.(*net.UnixListener).SetUnlinkOnClose(false)
			require.NoError(t, l.Close())
			require.NoError(t, os.Rename("s", path))
		},
	}
}

// inTime fails the test if f hangs.
func inTime(t *testing.T, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("hangs")
	}
}

// TestWhatStandsInTheWayIsSaid: each file of a folder, replaced by each thing that is no file, is an error of a kind that no retry is made
// for, or is as good as absent; nothing hangs, and what is right beside it works.
func TestWhatStandsInTheWayIsSaid(t *testing.T) {
	body := func() objstore.Body { return objstore.NewBody(make([]byte, 100)) }
	for kind := range intruders(t) {
		for _, tc := range []struct {
			name, path string // what is replaced; ID stands for the upload
			try        func(ctx context.Context, s *Store, id string, p objstore.Part) error
			want       objstore.Kind
		}{
			{"format, put", ".bindery/format", func(ctx context.Context, s *Store, _ string, _ objstore.Part) error {
				_, err := Open(vfs.OS(), s.root, Options{Create: true})
				_, herr := s.Head(ctx, "absent")
				require.Equal(t, objstore.KindForeign, objstore.KindOf(herr), "%v", herr)
				return err
			}, objstore.KindForeign},
			{"object, get", "object", func(ctx context.Context, s *Store, _ string, _ objstore.Part) error {
				_, err := s.GetRange(ctx, "object", 0, make([]byte, 1))
				_, herr := s.Head(ctx, "object")
				require.Equal(t, objstore.KindOf(err), objstore.KindOf(herr))
				return err
			}, objstore.KindForeign},
			{"object, put if absent", "object", func(ctx context.Context, s *Store, _ string, _ objstore.Part) error {
				_, err := s.Put(ctx, "object", body(), objstore.PutOptions{IfAbsent: true})
				return err
			}, objstore.KindExists},
			{"upload, part", ".bindery/uploads/ID/upload", func(ctx context.Context, s *Store, id string, _ objstore.Part) error {
				_, err := s.PutPart(ctx, "key", id, 1, body())
				return err
			}, objstore.KindNoUpload},
			{"upload, complete", ".bindery/uploads/ID/upload", func(ctx context.Context, s *Store, id string, p objstore.Part) error {
				_, err := s.CompleteUpload(ctx, "key", id, []objstore.Part{p})
				return err
			}, objstore.KindNoUpload},
			{"folder of the upload, complete", ".bindery/uploads/ID", func(ctx context.Context, s *Store, id string, p objstore.Part) error {
				_, err := s.CompleteUpload(ctx, "key", id, []objstore.Part{p})
				return err
			}, objstore.KindNoUpload},
			{"upload, abort", ".bindery/uploads/ID/upload", func(ctx context.Context, s *Store, id string, _ objstore.Part) error {
				return s.AbortUpload(ctx, "key", id)
			}, objstore.KindUnknown},
			{"part, complete", ".bindery/uploads/ID/p00001", func(ctx context.Context, s *Store, id string, p objstore.Part) error {
				_, err := s.CompleteUpload(ctx, "key", id, []objstore.Part{p})
				return err
			}, objstore.KindMisuse},
		} {
			t.Run(kind+"/"+tc.name, func(t *testing.T) {
				root := t.TempDir()
				s, err := Open(vfs.OS(), root, Options{Create: true})
				require.NoError(t, err)
				ctx := t.Context()
				_, err = s.Put(ctx, "object", body(), objstore.PutOptions{})
				require.NoError(t, err)
				id, err := s.CreateUpload(ctx, "key", objstore.UploadOptions{})
				require.NoError(t, err)
				other, err := s.CreateUpload(ctx, "other", objstore.UploadOptions{})
				require.NoError(t, err)
				p, err := s.PutPart(ctx, "key", id, 1, body())
				require.NoError(t, err)
				path := filepath.Join(root, strings.ReplaceAll(tc.path, "ID", id))
				require.NoError(t, os.RemoveAll(path))
				intruders(t)[kind](path)
				inTime(t, func() {
					err := tc.try(ctx, s, id, p)
					want := tc.want
					if kind == "folder" && tc.name == "object, get" {
						want = objstore.KindNotFound // a folder of other objects, as far as anybody can tell
					}
					if want == objstore.KindUnknown {
						require.NoError(t, err)
						return
					}
					require.Equal(t, want, objstore.KindOf(err), "%v", err)
					var typed *objstore.Error
					require.True(t, errors.As(err, &typed))
					if tc.path == ".bindery/format" {
						require.ErrorContains(t, err, path)
						require.NotEmpty(t, typed.Hint)
						return
					}
					list, err := s.ListUploads(ctx, "other")
					require.NoError(t, err)
					require.Len(t, list, 1)
					require.Equal(t, other, list[0].ID)
					_, err = s.List(ctx, "", "", 0)
					require.NoError(t, err)
					_, err = s.Put(ctx, "beside", body(), objstore.PutOptions{IfAbsent: true})
					require.NoError(t, err)
					again, err := Open(vfs.OS(), root, Options{})
					require.NoError(t, err)
					require.NoError(t, again.Close())
				})
			})
		}
	}
}

// TestAFolderThatIsNone: the target's path itself, and our own folder in it.
func TestAFolderThatIsNone(t *testing.T) {
	for kind, put := range intruders(t) {
		if kind == "folder" {
			continue
		}
		for _, name := range []string{"", ".bindery", ".bindery/tmp", ".bindery/uploads", ".bindery/conditional"} {
			t.Run(kind+"/"+filepath.Base(name), func(t *testing.T) {
				root := filepath.Join(t.TempDir(), "t")
				s, err := Open(vfs.OS(), root, Options{Create: true})
				require.NoError(t, err)
				require.NoError(t, os.RemoveAll(filepath.Join(root, name)))
				put(filepath.Join(root, name))
				inTime(t, func() {
					if name == "" || name == ".bindery" {
						_, err := Open(vfs.OS(), root, Options{Create: true})
						require.Equal(t, objstore.KindForeign, objstore.KindOf(err), "%v", err)
					}
					_, err := s.Put(t.Context(), "key", objstore.NewBody(nil), objstore.PutOptions{IfAbsent: true})
					_, uerr := s.CreateUpload(t.Context(), "key", objstore.UploadOptions{})
					for _, err := range []error{err, uerr} {
						var typed *objstore.Error
						require.True(t, err == nil || errors.As(err, &typed), "%v", err)
					}
					if name == ".bindery" || name == ".bindery/tmp" || name == "" {
						require.Equal(t, objstore.KindMisuse, objstore.KindOf(err), "%v", err)
					}
				})
			})
		}
	}
}
