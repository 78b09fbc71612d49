package offload

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/corrupt"
	"github.com/binderylog/bindery/internal/intent"
	"github.com/binderylog/bindery/internal/vfs"
	"github.com/binderylog/bindery/internal/vfs/errorfs"
	"github.com/binderylog/bindery/offload/objstore"
	"github.com/binderylog/bindery/offload/objstore/faulty"
)

// noted is where the worlds' workers keep the first generation of their notes.
const noted = "/w/00000001/00000000000000000001"

// workerOn starts a worker whose notes are on a disk of its own.
func (w *world) workerOn(fsys vfs.FS, o intent.Options) (*Worker, error) {
	log, err := intent.OpenVFS(fsys, "/w", o)
	if err != nil {
		return nil, err
	}
	wo := w.options()
	wo.Geometry, wo.Intents = Geometry{2, 1}, log
	return NewWorker(wo)
}

// TestTheDiskUnderTheIntentsFails: each write is refused in turn, once or from then on, for want of space or for good. The worker says so,
// the ledger stays where it is, and when there is room again the same worker goes on, or one that starts after a crash.
func TestTheDiskUnderTheIntentsFails(t *testing.T) {
	for name, spec := range crashLedgers() {
		for _, errno := range []syscall.Errno{syscall.ENOSPC, syscall.EIO} {
			t.Run(name+"/"+errno.Error(), func(t *testing.T) {
				failed := 0
				for n, met := int64(1), true; met; n++ {
					met = false
					for _, sticky := range []bool{false, true} {
						for _, crash := range []bool{false, true} {
							w := threeTargets(t)
							l := w.add(spec)
							inject := errorfs.Nth(errorfs.Write, n, errno)
							if sticky {
								inject = errorfs.From(errorfs.Write, n, errno)
							}
							disk := errorfs.NewSwitch(inject)
							x, err := w.workerOn(errorfs.Wrap(w.fs, disk), intent.Options{})
							require.NoError(t, err)
							disk.Set(true)
							err = x.Offload(t.Context(), l.id)
							disk.Set(false)
							met = met || err != nil
							if err != nil {
								failed++
								require.ErrorIs(t, err, errno)
								require.ErrorContains(t, err, "offload intents: ")
							}
							_, _, rerr := w.views.Ledgers.Read(t.Context(), l.id)
							require.NoError(t, rerr, "nothing is released")
							if crash || x.notes.log.Err() != nil {
								_, committed := w.records.Offloaded(t.Context(), l.id)
								if x.notes.log.Err() != nil && committed != nil {
									require.ErrorIs(t, x.Offload(t.Context(), l.id), intent.ErrPoisoned, "it does not go on as if nothing was")
								}
								require.NoError(t, x.Close())
								w.fs = w.fs.CrashClone(uint64(n), 0)
								w.meta.ExpireSession()
								x, err = w.workerOn(w.fs, intent.Options{})
								require.NoError(t, err)
							}
							require.NoError(t, x.Offload(t.Context(), l.id))
							require.Empty(t, x.Unfinished())
							require.NoError(t, x.notes.finish(t.Context()))
							require.Empty(t, x.notes.log.Pending(), "nothing is left in the log")
							require.NoError(t, x.Release(t.Context(), l.id, true))
							w.janitor(x)
							w.requireReadable(l)
							w.requireClean()
							require.NoError(t, x.Close())
						}
					}
				}
				require.Greater(t, failed, 4)
			})
		}
	}
}

// TestCheckpointsWithoutTheirUploadsAreNotUsed: the note of the uploads could not be written; the worker goes on all the same, dies, and
// another run has checkpoints of parts that no upload which it knows has.
func TestCheckpointsWithoutTheirUploadsAreNotUsed(t *testing.T) {
	w, l := killedAfterStripes(t, func(*Options) {})
	log, err := intent.OpenVFS(w.fs, "/w", intent.Options{})
	require.NoError(t, err)
	for _, r := range log.Pending() {
		if r.Data[0] == noteUploads {
			require.NoError(t, log.Done(t.Context(), r.ID))
		}
	}
	require.NoError(t, log.Close())
	w.meta.ExpireSession()
	x := w.worker("w", nil)
	require.Empty(t, x.notes.of(l.id).checkpoints)
	require.NoError(t, x.Offload(t.Context(), l.id))
	require.EqualValues(t, 1, w.record(l.id).Number, "the same attempt")
	w.janitor(x)
	w.requireReadable(l)
	w.requireClean()
	require.NoError(t, x.Close())
}

// TestPartsThatTheStoreDoesNotKnowEndTheAttempt: what is noted will not fit the next time either.
func TestPartsThatTheStoreDoesNotKnowEndTheAttempt(t *testing.T) {
	w, l := killedAfterStripes(t, func(*Options) {})
	w.meta.ExpireSession()
	x := w.worker("w", nil)
	defer x.Close()
	w.faults["t1"].Set(faulty.On(objstore.OpComplete, faulty.Nth(1, faulty.Fail(objstore.KindMisuse))))
	require.NoError(t, errors.Join(x.Offload(t.Context(), l.id)))
	require.EqualValues(t, 2, w.record(l.id).Number)
	w.healed()
	w.janitor(x)
	w.requireReadable(l)
	w.requireClean()
}

// TestDamagedIntentsAreReportedAndNotReplayed: a byte differs, anywhere in the file. Opening it says where; what is left fits together.
func TestDamagedIntentsAreReportedAndNotReplayed(t *testing.T) {
	w, l := killedAfterStripes(t, func(*Options) {})
	whole, err := vfs.ReadFile(w.fs, noted)
	require.NoError(t, err)
	attempt := w.record(l.id).Attempt
	fates := map[string]int64{} // what is left, and a byte that leaves it
	for at := range whole {
		b := bytes.Clone(whole)
		b[at] ^= 0x04
		disk := w.fs.Clone()
		require.NoError(t, vfs.WriteFileAtomic(disk, noted, b))
		log, err := intent.OpenVFS(disk.Clone(), "/w", intent.Options{})
		var said *corrupt.Error
		if err == nil { // the end of the file, that nobody was told of
			require.NoError(t, log.Close())
		} else {
			require.ErrorAs(t, err, &said, "byte %d", at)
			require.Equal(t, noted, said.Path)
			require.LessOrEqual(t, said.Offset, int64(at))
		}
		var lines bytes.Buffer
		log, err = intent.OpenVFS(disk, "/w", intent.Options{Salvage: true, Logger: slog.New(slog.NewTextHandler(&lines, nil))})
		require.NoError(t, err, "byte %d", at)
		require.Contains(t, lines.String(), noted, "byte %d", at)
		n, err := openIntents(log, "/w")
		require.NoError(t, err)
		fate := "nothing"
		if left := n.of(l.id); left != nil {
			require.Equal(t, attempt, left.attempt)
			require.True(t, len(left.checkpoints) == 0 || left.uploads != nil, "byte %d", at)
			fate = fmt.Sprint(len(left.checkpoints), " checkpoints, uploads ", left.uploads != nil)
		}
		fates[fate] = int64(at)
		require.NoError(t, log.Close())
	}
	require.GreaterOrEqual(t, len(fates), 4, "%v", fates)
	for fate, at := range fates {
		w, l := killedAfterStripes(t, func(*Options) {})
		b, err := vfs.ReadFile(w.fs, noted)
		require.NoError(t, err)
		b[min(at, int64(len(b)-1))] ^= 0x04
		require.NoError(t, vfs.WriteFileAtomic(w.fs, noted, b))
		w.meta.ExpireSession()
		log, err := intent.OpenVFS(w.fs, "/w", intent.Options{Salvage: true})
		require.NoError(t, err)
		o := w.options()
		o.Intents = log
		x, err := NewWorker(o)
		require.NoError(t, err)
		require.NoError(t, x.Offload(t.Context(), l.id), fate)
		require.Empty(t, x.Unfinished())
		w.janitor(x)
		w.requireReadable(l)
		w.requireClean()
		require.NoError(t, x.Close())
	}
}

// TestIntentsOfAnotherClusterAreRefused: the ids of its ledgers are those of others here.
func TestIntentsOfAnotherClusterAreRefused(t *testing.T) {
	root := t.TempDir()
	first, second := "8a0f2b52-0000-4000-8000-000000000001", "8a0f2b52-0000-4000-8000-000000000002"
	start := func(w *world, cluster string) (*Worker, error) {
		o := w.options()
		o.Geometry, o.Dir, o.Cluster = Geometry{2, 1}, root, cluster
		return NewWorker(o)
	}
	w := threeTargets(t)
	l := w.add(crashLedgers()["one stripe"])
	x, err := start(w, first)
	require.NoError(t, err)
	require.Empty(t, x.Unfinished())
	w.readErr = errors.New("bookies are down")
	require.Error(t, x.Offload(t.Context(), l.id))
	require.Len(t, x.Unfinished(), 1)
	require.NoError(t, x.Close())

	other := threeTargets(t)
	same := other.add(crashLedgers()["one stripe"]) // it has the id, too
	require.Equal(t, l.id, same.id)
	_, err = start(other, second)
	require.ErrorContains(t, err, root+" has those of cluster "+first+", and this is cluster "+second)
	require.ErrorContains(t, err, "name another one")
	_, _, err = other.records.Read(t.Context(), same.id)
	require.ErrorIs(t, err, ErrNoRecord)

	// The first one goes on, and once nothing is noted any more the directory may go to the other.
	w.readErr = nil
	x, err = start(w, first)
	require.NoError(t, err)
	require.NoError(t, x.Offload(t.Context(), l.id))
	require.EqualValues(t, 1, w.record(l.id).Number, "the same attempt")
	require.NoError(t, x.Close())
	for range 2 {
		x, err = start(other, second)
		require.NoError(t, err)
		require.Len(t, x.notes.log.Pending(), 1)
		require.NoError(t, x.Close())
	}
	x, err = start(w, "") // a worker that does not know its cluster
	require.NoError(t, err)
	require.NoError(t, x.Close())
}

// TestNotesOfANewerWorkerAreLeftAlone: the log itself, and kinds of notes in it.
func TestNotesOfANewerWorkerAreLeftAlone(t *testing.T) {
	w, l := killedAfterStripes(t, func(*Options) {})
	log, err := intent.OpenVFS(w.fs, "/w", intent.Options{})
	require.NoError(t, err)
	attempt := w.record(l.id).Attempt
	b := append([]byte{77}, attempt[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(l.id))
	_, err = log.Append(t.Context(), append(b, "what this version knows nothing of"...))
	require.NoError(t, err)
	n, err := openIntents(log, "/w")
	require.NoError(t, err)
	require.Len(t, n.of(l.id).checkpoints, 2, "the others are of use")
	require.NoError(t, n.end(t.Context(), attempt))
	require.Empty(t, log.Pending(), "it ends with its attempt")
	require.NoError(t, log.Close())
}

// TestADirectoryOfSomethingElse has intents of a bookie, say: they are not a worker's to end.
func TestADirectoryOfSomethingElse(t *testing.T) {
	w := threeTargets(t)
	for _, data := range [][]byte{{1, 2, 3}, bytes.Repeat([]byte{1}, 100), bytes.Repeat([]byte{77}, 100), make([]byte, 100)} {
		root := t.TempDir()
		log, err := intent.Open(root, intent.Options{})
		require.NoError(t, err)
		_, err = log.Append(t.Context(), data)
		require.NoError(t, err)
		require.NoError(t, log.Close())
		o := w.options()
		o.Geometry, o.Dir = Geometry{2, 1}, root
		_, err = NewWorker(o)
		require.ErrorContains(t, err, "offload intents: "+root+": intent 1 is none of a worker of this version")
		log, err = intent.Open(root, intent.Options{})
		require.NoError(t, err)
		require.Len(t, log.Pending(), 1)
		require.NoError(t, log.Close())
	}
}

// TestADirectoryThatAWorkerMayNotHave: what is wrong, where, and what to do about it.
func TestADirectoryThatAWorkerMayNotHave(t *testing.T) {
	root := t.TempDir()
	w := threeTargets(t)
	start := func(dir, name string) (*Worker, error) {
		o := w.options()
		o.Geometry, o.Dir, o.Name = Geometry{2, 1}, dir, name
		return NewWorker(o)
	}
	x, err := start(root, "first")
	require.NoError(t, err)
	_, err = start(root, "second")
	require.ErrorIs(t, err, vfs.ErrLocked)
	require.ErrorContains(t, err, fmt.Sprintf("worker first (process %d) has it open", os.Getpid()))
	require.ErrorContains(t, err, root)
	require.ErrorContains(t, err, "[offload] dir")
	require.NoError(t, x.Close())

	file := filepath.Join(root, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err = start(file, "w")
	require.ErrorContains(t, err, file)
	require.Equal(t, 1, strings.Count(err.Error(), "offload intents: "))
	if os.Getuid() == 0 { // who may read everything: the error is made up
		err = intentsError(root, fmt.Errorf("open: %w", os.ErrPermission))
	} else {
		closed := filepath.Join(root, "closed")
		require.NoError(t, os.Mkdir(closed, 0o000))
		_, err = start(closed, "w")
	}
	require.ErrorIs(t, err, os.ErrPermission)
	require.ErrorContains(t, err, "let the worker's user read and write ")
}

// TestTwoWorkersOfOneName do what two workers of two names do: the name is for people.
func TestTwoWorkersOfOneName(t *testing.T) {
	w := threeTargets(t)
	var ledgers []*testLedger
	for i := range 6 {
		ledgers = append(ledgers, w.add(ledgerSpec{seed: uint64(i), sizes: even(300, 1000)}))
	}
	one, other := w.worker("one", func(o *Options) { o.Geometry = Geometry{2, 1} }), w.worker("other", func(o *Options) { o.Geometry = Geometry{2, 1} })
	defer one.Close()
	defer other.Close()
	done := make(chan error, 2)
	for _, x := range []*Worker{one, other} {
		go func() {
			var errs []error
			for _, l := range ledgers {
				var s *StoppedError
				if err := x.Offload(context.Background(), l.id); !errors.As(err, &s) { // somebody else has it in hand
					errs = append(errs, err)
				}
			}
			done <- errors.Join(errs...)
		}()
	}
	require.NoError(t, errors.Join(<-done, <-done))
	for _, l := range ledgers {
		require.NoError(t, one.Offload(t.Context(), l.id))
		require.EqualValues(t, 1, w.record(l.id).Number, "no attempt was displaced")
		w.requireReadable(l)
	}
	w.janitor(one)
	w.requireClean()
}
