package bookie

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/internal/metadata/memmeta"
)

// desk is a store with one registration on it and another client that looks.
type desk struct {
	t     *testing.T
	tree  *memmeta.Tree
	store *memmeta.Store
	other *memmeta.Store
	reg   *Registration
}

func startInfo(epoch string) metadata.ServiceInfo {
	return metadata.ServiceInfo{
		Endpoints:  []metadata.Endpoint{{ID: "bookie", Host: "b1", Port: 3181, Protocol: "bookie-rpc"}},
		Properties: map[string]string{metadata.PropertyIncarnation: "inc", metadata.PropertyEpoch: epoch},
	}
}

func newDesk(t *testing.T, info metadata.ServiceInfo) *desk {
	d := &desk{t: t, tree: memmeta.NewTree()}
	d.store, d.other = d.tree.Open(), d.tree.Open()
	d.reg = NewRegistration(RegistrationOptions{
		Bookies: metadata.NewBookies(d.store, "/ledgers"), ID: "b1:3181", Info: info, Wait: 100 * time.Millisecond, Timeout: 200 * time.Millisecond,
	})
	t.Cleanup(func() {
		_ = d.reg.Stop(context.Background())
		require.NoError(t, d.store.Close())
		require.NoError(t, d.other.Close())
	})
	return d
}

// await waits until the store says what is wanted of the bookie: "", "rw" or "ro".
func (d *desk) await(want string) {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	got := ""
	for set := range metadata.NewBookies(d.other, "/ledgers").Follow(ctx, "b1:3181") {
		got = ""
		for _, b := range set {
			if b.ReadOnly {
				got += "ro"
			} else {
				got += "rw"
			}
		}
		if got == want {
			return
		}
	}
	d.t.Fatalf("the store says %q, not %q", got, want)
}

func TestRegistrationLife(t *testing.T) {
	ctx := context.Background()
	d := newDesk(t, startInfo("5"))
	registered, _ := d.reg.Registered()
	require.False(t, registered)
	require.NoError(t, d.reg.Start(ctx, true))
	d.await("ro")
	registered, readOnly := d.reg.Registered()
	require.True(t, registered)
	require.True(t, readOnly)
	requireExit(t, d.reg.Start(ctx, true), ExitRegistration)

	for range 3 {
		d.reg.SetReadOnly(false)
		d.await("rw")
		d.reg.SetReadOnly(true)
		d.await("ro")
	}
	// The session is lost: it comes back, in the mode wanted last.
	require.True(t, d.store.ExpireSession())
	d.await("ro")
	d.reg.SetReadOnly(false)
	require.True(t, d.store.ExpireSession())
	d.await("rw")
	// Someone removes the key by hand.
	require.NoError(t, d.other.Delete(ctx, "/ledgers/available/b1:3181", metadata.Any))
	d.await("rw")
	require.NoError(t, d.reg.Err())

	require.NoError(t, d.reg.Stop(ctx))
	d.await("")
	require.NoError(t, d.reg.Stop(ctx))
	requireExit(t, d.reg.Start(ctx, false), ExitRegistration)
}

func TestRegistrationStartRefused(t *testing.T) {
	d := newDesk(t, startInfo("5"))
	_, err := metadata.NewBookies(d.other, "/ledgers").Register(context.Background(), "b1:3181", metadata.ServiceInfo{}, false, 0)
	require.NoError(t, err)
	err = d.reg.Start(context.Background(), false)
	requireExit(t, err, ExitRegistration, "another process is registered")
	require.ErrorIs(t, err, metadata.ErrRegistered)
	require.NoError(t, d.reg.Stop(context.Background()))
	d.await("rw") // the other one's
}

func TestRegistrationReplacesPredecessor(t *testing.T) {
	d := newDesk(t, startInfo("5"))
	d.reg.o.Wait = time.Hour
	_, err := metadata.NewBookies(d.other, "/ledgers").Register(context.Background(), "b1:3181", startInfo("4"), true, 0)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), patience) // it does not wait for the dead process's session
	defer cancel()
	require.NoError(t, d.reg.Start(ctx, false))
	d.await("rw")
}

func TestRegistrationTakenOver(t *testing.T) {
	ctx := context.Background()
	for name, info := range map[string]metadata.ServiceInfo{"later start": startInfo("6"), "stranger": {}} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t, startInfo("5"))
			require.NoError(t, d.reg.Start(ctx, false))
			s, err := d.other.Session(ctx)
			require.NoError(t, err)
			_, err = d.other.Txn(ctx, metadata.Txn{Puts: []metadata.Put{{
				Key: "/ledgers/available/b1:3181", Value: metadata.EncodeServiceInfo(info), Version: metadata.Any, Session: s,
			}}})
			require.NoError(t, err)
			select {
			case <-d.reg.Failed():
			case <-time.After(patience):
				t.Fatal("not noticed")
			}
			requireExit(t, d.reg.Err(), ExitIdentity, "another process has registered as bookie b1:3181")
			registered, _ := d.reg.Registered()
			require.False(t, registered)
			require.NoError(t, d.reg.Stop(ctx))
			d.await("rw")
			set, err := metadata.NewBookies(d.other, "/ledgers").Registrations(ctx, "b1:3181")
			require.NoError(t, err)
			require.Equal(t, s.ID(), set[0].Session, "the other registration is left alone")
		})
	}
}

// TestRegistrationOwnOldSession lets the key of an earlier session of the same process stay for a while, as etcd does when a
// lease outlives the client's belief in it.
func TestRegistrationOwnOldSession(t *testing.T) {
	ctx := context.Background()
	d := newDesk(t, startInfo("5"))
	require.NoError(t, d.reg.Start(ctx, false))
	s, err := d.other.Session(ctx)
	require.NoError(t, err)
	var once atomic.Bool
	d.store.SetFaults(func(op memmeta.Op) memmeta.Fault {
		if op.Name == "session" && once.CompareAndSwap(false, true) {
			_, err := d.other.Txn(ctx, metadata.Txn{Puts: []metadata.Put{{
				Key: "/ledgers/available/b1:3181", Value: metadata.EncodeServiceInfo(startInfo("5")), Version: metadata.Any, Session: s,
			}}})
			require.NoError(t, err)
		}
		return memmeta.Fault{}
	})
	require.True(t, d.store.ExpireSession())
	require.Eventually(t, func() bool {
		set, err := metadata.NewBookies(d.other, "/ledgers").Registrations(ctx, "b1:3181")
		return err == nil && len(set) == 1 && set[0].Session != s.ID() && once.Load()
	}, 30*time.Second, 5*time.Millisecond)
	require.NoError(t, d.reg.Err())
}

func TestRegistrationStoreDown(t *testing.T) {
	ctx := context.Background()
	d := newDesk(t, startInfo("5"))
	require.NoError(t, d.reg.Start(ctx, false))
	var asked atomic.Int64
	d.store.SetFaults(func(memmeta.Op) memmeta.Fault {
		asked.Add(1)
		return memmeta.Fault{Err: errors.New("connection refused")}
	})
	require.True(t, d.store.ExpireSession())
	d.await("")
	require.Eventually(t, func() bool { return asked.Load() > 0 }, 30*time.Second, time.Millisecond)
	registered, _ := d.reg.Registered()
	require.False(t, registered)
	d.reg.SetReadOnly(true)
	d.store.SetFaults(nil)
	d.await("ro")

	// Answers get lost in every way; the outcome is the same.
	for _, o := range []memmeta.Outcome{memmeta.Applied, memmeta.Dropped, memmeta.Late} {
		storeFaults(d.store, 1, memmeta.Fault{Outcome: o})
		_, ro := d.reg.Registered()
		d.reg.SetReadOnly(!ro)
		d.await(map[bool]string{true: "rw", false: "ro"}[ro])
		d.store.SetFaults(nil)
		d.tree.LandLate()
		d.await(map[bool]string{true: "rw", false: "ro"}[ro])
		require.Eventually(t, func() bool { _, now := d.reg.Registered(); return now != ro }, 30*time.Second, time.Millisecond)
	}

	// The store is gone for good when the bookie stops: it does not hang, and says what remains.
	d.store.SetFaults(func(memmeta.Op) memmeta.Fault { return memmeta.Fault{Err: errors.New("connection refused")} })
	require.Error(t, d.reg.Stop(ctx))
}

// TestRegistrationStoreClosed closes the store under the keeper, which must neither spin nor hang.
func TestRegistrationStoreClosed(t *testing.T) {
	ctx := context.Background()
	d := newDesk(t, startInfo("5"))
	require.NoError(t, d.reg.Start(ctx, false))
	var asked atomic.Int64
	d.store.SetFaults(func(memmeta.Op) memmeta.Fault { asked.Add(1); return memmeta.Fault{} })
	require.NoError(t, d.store.Close())
	d.await("")
	require.Eventually(t, func() bool { registered, _ := d.reg.Registered(); return !registered }, 30*time.Second, time.Millisecond)
	require.Zero(t, asked.Load())
	require.NoError(t, d.reg.Stop(ctx))
	require.NoError(t, d.reg.Err())
}
