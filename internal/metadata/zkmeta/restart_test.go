package zkmeta

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/metadata"
)

func (z *server) openFor(t *testing.T, o Options) *Store {
	s := z.open(o)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// TestRestartUnderLoad kills and restarts ZooKeeper while clients count up by compare-and-set, watch, and hold a
// registration. What was acknowledged is there, nothing happens that nobody asked for, the session lives on, and the watch
// misses nothing.
func TestRestartUnderLoad(t *testing.T) {
	z := startServer(t, 6000) // sessions of up to two minutes
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	const writers, restarts = 4, 2

	bookies := metadata.NewBookies(z.openFor(t, Options{SessionTTL: 2 * time.Minute}), "/ledgers")
	reg, err := bookies.Register(ctx, "b1:3181", metadata.ServiceInfo{}, false, time.Second)
	require.NoError(t, err)

	watched := make(chan map[string]string)
	events := z.openFor(t, Options{SessionTTL: 2 * time.Minute}).Watch(ctx, "/count/")
	go func() {
		last := map[string]string{}
		for ev := range events {
			if ev.Kind == metadata.EventPut {
				last[ev.KV.Key] = string(ev.KV.Value)
			}
			if ev.KV.Key == "/count/end" {
				break
			}
		}
		watched <- last
	}()

	var stop atomic.Bool
	var acked, unknown [writers]int
	var wg sync.WaitGroup
	for w := range writers {
		s := z.openFor(t, Options{SessionTTL: 2 * time.Minute, Timeout: 10 * time.Minute})
		key := fmt.Sprintf("/count/%d", w)
		wg.Go(func() {
			for !stop.Load() || acked[w] == 0 {
				n, v := 0, metadata.Absent
				kv, err := s.Get(ctx, key)
				if err == nil {
					n, _ = strconv.Atoi(string(kv.Value))
					v = kv.Version
				} else if !errors.Is(err, metadata.ErrNotFound) {
					t.Errorf("a read failed within the time-out: %v", err)
					return
				}
				_, err = s.Put(ctx, key, []byte(strconv.Itoa(n+1)), v)
				switch {
				case err == nil:
					acked[w]++
				case errors.Is(err, metadata.ErrUnknownOutcome):
					unknown[w]++
				case errors.Is(err, metadata.ErrVersion): // an earlier write of unknown outcome landed late
				default:
					t.Errorf("writer %d: %v", w, err)
					return
				}
			}
		})
	}
	away := time.Duration(0)
	for range restarts {
		time.Sleep(500 * time.Millisecond)
		begun := time.Now()
		z.Kill()
		time.Sleep(100 * time.Millisecond)
		z.Start()
		away = max(away, time.Since(begun))
	}
	time.Sleep(2 * time.Second)
	stop.Store(true)
	wg.Wait()

	s := z.openFor(t, Options{})
	final := map[string]string{}
	for w := range writers {
		kv, err := s.Get(ctx, fmt.Sprintf("/count/%d", w))
		require.NoError(t, err)
		n, err := strconv.Atoi(string(kv.Value))
		require.NoError(t, err)
		require.GreaterOrEqual(t, n, acked[w])
		require.LessOrEqual(t, n, acked[w]+unknown[w])
		require.Positive(t, acked[w])
		final[kv.Key] = string(kv.Value)
	}
	_, err = s.Put(ctx, "/count/end", nil, metadata.Any)
	require.NoError(t, err)
	final["/count/end"] = ""
	select {
	case last := <-watched:
		require.Equal(t, final, last)
	case <-time.After(2 * time.Minute):
		t.Fatal("the watch did not catch up")
	}
	if away > time.Minute {
		t.Logf("a restart took %v: the session may have ended", away)
		return
	}
	require.False(t, reg.Session.(*link).ended(), "a restart shorter than the session's life does not end it")
	got, err := bookies.Resolve(ctx, "b1:3181")
	require.NoError(t, err)
	require.Equal(t, reg.Session.ID(), got.Session)
}

// TestSessionLostWhileAway cuts a client off for longer than its session lives: it notices by its own clock, although no
// server tells it, and registers anew when it is back.
func TestSessionLostWhileAway(t *testing.T) {
	z := startServer(t, 500)
	ctx := context.Background()
	s := z.openFor(t, Options{SessionTTL: 6 * time.Second, Timeout: time.Minute})
	b := metadata.NewBookies(s, "/ledgers")
	reg, err := b.Register(ctx, "b1:3181", metadata.ServiceInfo{}, false, time.Second)
	require.NoError(t, err)
	z.proxy.refuse(true)
	z.proxy.mute(true) // the connection stays open and silent
	select {
	case <-reg.Session.Done():
	case <-time.After(time.Minute):
		t.Fatal("the session did not end by the client's own clock")
	}
	z.proxy.mute(false)
	z.proxy.refuse(false)
	next, err := b.Register(ctx, "b1:3181", metadata.ServiceInfo{}, true, time.Minute)
	require.NoError(t, err)
	require.NotEqual(t, reg.Session.ID(), next.Session.ID())
	got, err := b.Registrations(ctx, "b1:3181")
	require.NoError(t, err)
	require.Len(t, got, 1)
	require.Equal(t, next.Session.ID(), got[0].Session)
}

// TestOldSessionReplaced registers while the ephemeral node of an own earlier session is still there: it is replaced at once,
// and its end does not take the new one along.
func TestOldSessionReplaced(t *testing.T) {
	z := startServer(t, 500)
	ctx := context.Background()
	info := metadata.ServiceInfo{Properties: map[string]string{metadata.PropertyIncarnation: "inc", metadata.PropertyEpoch: "7"}}
	old, s := z.openFor(t, Options{SessionTTL: 10 * time.Second}), z.openFor(t, Options{SessionTTL: 10 * time.Second})
	first, err := metadata.NewBookies(old, "/ledgers").Register(ctx, "b1:3181", info, false, time.Second)
	require.NoError(t, err)
	b := metadata.NewBookies(s, "/ledgers")
	second, err := b.Register(ctx, "b1:3181", info, false, 0)
	require.NoError(t, err)
	require.Greater(t, second.Version, first.Version, "nobody may take the new node for the old one")
	z.expire(t, first.Session)
	<-first.Session.Done()
	got, err := b.Registrations(ctx, "b1:3181")
	require.NoError(t, err)
	require.Len(t, got, 1)
	require.Equal(t, second.Session.ID(), got[0].Session)
	require.Equal(t, second.Version, got[0].Version)
}

// TestLostReply loses the answer to a write that ZooKeeper carries out.
func TestLostReply(t *testing.T) {
	z := startServer(t, 500)
	ctx := context.Background()
	s := z.openFor(t, Options{SessionTTL: 20 * time.Second})
	v, err := s.Put(ctx, "/k", []byte("1"), metadata.Absent)
	require.NoError(t, err)
	z.proxy.mute(true)
	short, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	_, err = s.Put(short, "/k", []byte("2"), v)
	require.ErrorIs(t, err, metadata.ErrUnknownOutcome)
	require.ErrorIs(t, err, context.DeadlineExceeded)

	z.proxy.mute(false)
	z.proxy.cut()
	kv, err := s.Get(ctx, "/k")
	require.NoError(t, err)
	require.Equal(t, "2", string(kv.Value))

	z.proxy.mute(true)
	lost := make(chan error, 1)
	go func() {
		_, err := s.Put(ctx, "/k2", []byte("2"), metadata.Absent)
		lost <- err
	}()
	direct, err := Open(ctx, Options{Servers: []string{z.Addr}})
	require.NoError(t, err)
	defer func() { require.NoError(t, direct.Close()) }()
	require.Eventually(t, func() bool { _, err := direct.Get(ctx, "/k2"); return err == nil }, 30*time.Second, 10*time.Millisecond)
	z.proxy.cut()
	require.ErrorIs(t, <-lost, metadata.ErrUnknownOutcome)
	z.proxy.mute(false)
	kv, err = s.Get(ctx, "/k2")
	require.NoError(t, err)
	require.Equal(t, "2", string(kv.Value))
}

// TestDown checks what calls say while no server is there: nothing was sent, so nothing is unknown.
func TestDown(t *testing.T) {
	z := startServer(t, 500)
	s := z.openFor(t, Options{SessionTTL: time.Minute})
	ctx := context.Background()
	_, err := s.Put(ctx, "/k", []byte("1"), metadata.Absent)
	require.NoError(t, err)
	s.o.Timeout = 700 * time.Millisecond
	z.Kill()
	z.proxy.cut()
	require.Eventually(t, func() bool { _, err := s.Get(ctx, "/k"); return errors.Is(err, metadata.ErrUnavailable) }, 30*time.Second, 10*time.Millisecond)
	for _, call := range []func() error{
		func() error { _, err := s.Get(ctx, "/k"); return err },
		func() error { _, err := s.List(ctx, "/", "", 1); return err },
		func() error { _, err := s.Sequence(ctx, "/a/b"); return err },
		func() error { _, err := s.Session(ctx); return err },
		func() error { _, err := s.Put(ctx, "/k", nil, metadata.Any); return err },
	} {
		begun := time.Now()
		require.ErrorIs(t, call(), metadata.ErrUnavailable)
		require.Less(t, time.Since(begun), 30*time.Second)
	}
	_, err = Open(ctx, Options{Servers: []string{z.Addr}, Timeout: 300 * time.Millisecond})
	require.ErrorIs(t, err, metadata.ErrUnavailable)
	require.ErrorContains(t, err, z.Addr)
	_, err = Open(ctx, Options{})
	require.Error(t, err)

	z.Start() // it comes back by itself
	require.EventuallyWithT(t, func(t *assert.CollectT) { _, err := s.Get(ctx, "/k"); assert.NoError(t, err) }, 30*time.Second, 10*time.Millisecond)
}

// TestSilentServer lets a server take a connection and say nothing on it, as one does that hangs: it is given up before long,
// at the beginning and in the middle of a session.
func TestSilentServer(t *testing.T) {
	z := startServer(t, 2000)
	ctx, cancel := context.WithTimeout(t.Context(), 4*greetTimeout)
	defer cancel()
	silent := func() {
		z.proxy.mute(true)
		z.proxy.cut()
		time.AfterFunc(time.Second, func() { z.proxy.mute(false) }) // what was swallowed stays away
	}
	silent()
	s, err := Open(ctx, Options{Servers: []string{z.proxy.addr()}, SessionTTL: time.Minute})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	session, err := s.Session(ctx)
	require.NoError(t, err)
	silent()
	again, err := s.Session(ctx)
	require.NoError(t, err)
	_, err = s.Get(ctx, "/none")
	require.ErrorIs(t, err, metadata.ErrNotFound)
	require.Equal(t, session.ID(), again.ID())
}
