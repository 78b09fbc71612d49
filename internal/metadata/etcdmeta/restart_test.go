package etcdmeta

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/internal/metadata/metadatatest"
	"github.com/binderylog/bindery/internal/vfs"
)

// member is an etcd that can be stopped and started again on the same port.
type member struct {
	t    *testing.T
	dir  string
	addr string
	e    *Embedded
}

func newMember(t *testing.T) *member {
	m := &member{t: t, dir: t.TempDir(), addr: freePorts(t, 1)[0]}
	m.start()
	t.Cleanup(m.stop)
	return m
}

func (m *member) start() {
	e, err := StartEmbedded(context.Background(), EmbeddedOptions{Dir: m.dir, ClientURL: m.addr, UnsafeNoSync: true})
	require.NoError(m.t, err)
	require.Equal(m.t, []string{m.addr}, e.Endpoints())
	m.e = e
}

func (m *member) stop() {
	if m.e != nil {
		require.NoError(m.t, m.e.Close())
		m.e = nil
	}
}

func (m *member) open(o Options) *Store {
	o.Endpoints = []string{m.addr}
	s, err := Open(context.Background(), o)
	require.NoError(m.t, err)
	m.t.Cleanup(func() { require.NoError(m.t, s.Close()) })
	return s
}

// TestRestartUnderLoad restarts etcd while clients count up by compare-and-set, watch, and hold a registration. What was
// acknowledged is there, nothing happens that nobody asked for, the session lives on, and the watch misses nothing.
func TestRestartUnderLoad(t *testing.T) {
	m := newMember(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	const writers, restarts = 4, 3

	registrar := m.open(Options{SessionTTL: 2 * time.Minute})
	bookies := metadata.NewBookies(registrar, "/ledgers")
	reg, err := bookies.Register(ctx, "b1:3181", metadata.ServiceInfo{}, false, time.Second)
	require.NoError(t, err)

	watched := make(chan map[string]string)
	go func() {
		last := map[string]string{}
		for ev := range m.open(Options{}).Watch(ctx, "/count/") {
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
		s := m.open(Options{Timeout: 2 * time.Minute})
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
				case errors.Is(err, metadata.ErrVersion):
					// an earlier write of unknown outcome landed late
				default:
					t.Errorf("writer %d: %v", w, err)
					return
				}
			}
		})
	}
	for range restarts {
		time.Sleep(200 * time.Millisecond)
		m.stop()
		time.Sleep(100 * time.Millisecond)
		begun := time.Now()
		m.start()
		require.Less(t, time.Since(begun), 30*time.Second, "a member on an existing directory starts quickly")
	}
	time.Sleep(200 * time.Millisecond)
	stop.Store(true)
	wg.Wait()

	s := m.open(Options{})
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

	require.True(t, reg.Session.(*session).alive(), "a restart shorter than the session's life does not end it")
	got, err := bookies.Resolve(ctx, "b1:3181")
	require.NoError(t, err)
	require.Equal(t, reg.Session.ID(), got.Session)
}

// TestSessionLostWhileDown keeps etcd away for longer than a session lives.
func TestSessionLostWhileDown(t *testing.T) {
	m := newMember(t)
	s := m.open(Options{SessionTTL: 5 * time.Second, Timeout: time.Minute})
	ctx := context.Background()
	b := metadata.NewBookies(s, "/ledgers")
	reg, err := b.Register(ctx, "b1:3181", metadata.ServiceInfo{}, false, time.Second)
	require.NoError(t, err)
	m.stop()
	select {
	case <-reg.Session.Done():
	case <-time.After(time.Minute):
		t.Fatal("the session did not end by the client's own clock")
	}
	m.start()
	next, err := b.Register(ctx, "b1:3181", metadata.ServiceInfo{}, true, time.Minute)
	require.NoError(t, err)
	require.NotEqual(t, reg.Session.ID(), next.Session.ID())
	got, err := b.Registrations(ctx, "b1:3181")
	require.NoError(t, err)
	require.Len(t, got, 1)
	require.Equal(t, next.Session.ID(), got[0].Session)
}

// TestSessionThatNobodyRenewsEnds: etcd answers the grant of a lease and nothing after it. The session ends with its life, however long the
// store may wait for a connection.
func TestSessionThatNobodyRenewsEnds(t *testing.T) {
	m := newMember(t)
	s := m.open(Options{Timeout: time.Hour})
	n := &session{lease: 1, done: make(chan struct{}), end: func() {}}
	beats := make(chan *clientv3.LeaseKeepAliveResponse, 2)
	beats <- &clientv3.LeaseKeepAliveResponse{TTL: 3600}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.keep(n, beats, time.Now().Add(-time.Second)) // with an answer waiting
	}()
	beats <- &clientv3.LeaseKeepAliveResponse{TTL: 3600}
	require.Eventually(t, func() bool { return len(beats) == 0 }, 30*time.Second, time.Millisecond)
	require.True(t, n.alive())
	beats <- &clientv3.LeaseKeepAliveResponse{} // the last life is none
	<-ended
	require.False(t, n.alive())

	last := &session{lease: 2, done: make(chan struct{}), end: func() {}}
	s.keep(last, make(chan *clientv3.LeaseKeepAliveResponse), time.Now())
	require.False(t, last.alive())
}

// TestDown checks what calls say while no member is there: nothing was sent, so nothing is unknown.
func TestDown(t *testing.T) {
	m := newMember(t)
	s := m.open(Options{})
	ctx := context.Background()
	_, err := s.Put(ctx, "/k", []byte("1"), metadata.Absent)
	require.NoError(t, err)
	m.stop()
	s.o.Timeout = 700 * time.Millisecond
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
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	_, err = s.Get(short, "/k")
	require.ErrorIs(t, err, context.DeadlineExceeded)

	_, err = Open(ctx, Options{Endpoints: []string{m.addr}, Timeout: 300 * time.Millisecond})
	require.ErrorIs(t, err, metadata.ErrUnavailable)
	require.ErrorContains(t, err, m.addr)
	_, err = Open(ctx, Options{})
	require.Error(t, err)

	// It comes back by itself.
	m.start()
	require.Eventually(t, func() bool { _, err := s.Get(ctx, "/k"); return err == nil }, 30*time.Second, 10*time.Millisecond)
}

// TestWatchCompacted follows a watch whose history has been compacted away: it takes stock again and reports what differs,
// deletions included.
func TestWatchCompacted(t *testing.T) {
	e := startEtcd(t, t.TempDir())
	s := openStore(t, e, Options{})
	defer s.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	put := func(key, value string) metadata.Version {
		v, err := s.Put(ctx, key, []byte(value), metadata.Any)
		require.NoError(t, err)
		return v
	}
	put("/w/kept", "1")
	put("/w/changed", "1")
	put("/w/gone", "1")
	w := &watcher{s: s, prefix: "/w/", out: make(chan metadata.Event, 100), told: map[string]metadata.Version{}, state: map[string]metadata.KV{}}
	rev, err := w.takeStock(ctx)
	require.NoError(t, err)
	events := func() map[string]string {
		got := map[string]string{}
		for {
			ev, more := w.next()
			if !more {
				return got
			}
			got[ev.KV.Key] = fmt.Sprintf("%d %s", ev.Kind, ev.KV.Value)
			w.taken(ev)
		}
	}
	require.Equal(t, map[string]string{"/w/kept": "1 1", "/w/changed": "1 1", "/w/gone": "1 1"}, events())

	put("/w/changed", "2")
	put("/w/came-and-went", "x")
	require.NoError(t, s.Delete(ctx, "/w/came-and-went", metadata.Any))
	require.NoError(t, s.Delete(ctx, "/w/gone", metadata.Any))
	v := put("/w/new", "1")
	_, err = s.client.Compact(ctx, int64(v))
	require.NoError(t, err)
	err = w.follow(ctx, rev+1)
	require.ErrorContains(t, err, "compacted")
	_, err = w.takeStock(ctx)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"/w/changed": "1 2", "/w/gone": "2 ", "/w/new": "1 1"}, events())
}

func TestEmbedded(t *testing.T) {
	dir := t.TempDir()
	e := startEtcd(t, dir)
	select {
	case <-e.Failed():
		t.Fatal("failed")
	default:
	}
	_, err := StartEmbedded(context.Background(), EmbeddedOptions{Dir: dir})
	require.ErrorIs(t, err, vfs.ErrLocked)
	require.ErrorContains(t, err, dir)
	_, err = StartEmbedded(context.Background(), EmbeddedOptions{Dir: t.TempDir(), ClientURL: e.Endpoints()[0]})
	require.ErrorContains(t, err, "address already in use")
	for _, bad := range []EmbeddedOptions{{}, {Dir: t.TempDir(), ClientURL: "ftp://x:1"}, {Dir: t.TempDir(), PeerURL: "http://"}} {
		_, err = StartEmbedded(context.Background(), bad)
		require.Error(t, err)
	}
	s := openStore(t, e, Options{})
	_, err = s.Put(context.Background(), "/k", []byte("v"), metadata.Absent)
	require.NoError(t, err)
	require.NoError(t, s.Close())
	require.NoError(t, e.Close())
	require.NoError(t, e.Close())
	require.NoError(t, e.Err())

	begun := time.Now()
	e = startEtcd(t, dir)
	require.Less(t, time.Since(begun), 30*time.Second)
	s = openStore(t, e, Options{})
	defer s.Close()
	kv, err := s.Get(context.Background(), "/k")
	require.NoError(t, err)
	require.Equal(t, "v", string(kv.Value))
}

// TestC57ManyLedgers lists 100,000 ledgers by pages and finds those of one bookie.
func TestC57ManyLedgers(t *testing.T) {
	if testing.Short() {
		t.Skip("creates 100,000 records")
	}
	e := startEtcd(t, t.TempDir())
	s := openStore(t, e, Options{})
	defer s.Close()
	ctx := context.Background()
	l := metadata.NewLedgers(s, "/ledgers")
	total := 100_000
	if raceEnabled {
		total = 10_000
	}
	mine, err := metadata.EncodeLedger(metadatatest.Record("b1:3181", "b2:3181", "b3:3181"))
	require.NoError(t, err)
	others, err := metadata.EncodeLedger(metadatatest.Record("b4:3181", "b2:3181", "b3:3181"))
	require.NoError(t, err)
	id := func(i int) ledger.ID {
		if i >= total/2 {
			return ledger.ID(i)<<20 + 1<<40
		}
		return ledger.ID(i) * 7919
	}
	for i := 0; i < total; i += metadata.TxnMax {
		var x metadata.Txn
		for j := i; j < i+metadata.TxnMax; j++ {
			v := others
			if j%100 == 0 {
				v = mine
			}
			x.Puts = append(x.Puts, metadata.Put{Key: l.Key(id(j)), Value: v, Version: metadata.Absent})
		}
		_, err := s.Txn(ctx, x)
		require.NoError(t, err)
	}
	begun := time.Now()
	n, last := 0, ledger.ID(-1)
	for {
		ids, err := l.List(ctx, last, 1000)
		require.NoError(t, err)
		if len(ids) == 0 {
			break
		}
		for _, got := range ids {
			require.Equal(t, id(n), got)
			n++
		}
		last = ids[len(ids)-1]
	}
	require.Equal(t, total, n)
	listed := time.Since(begun)
	named := 0
	for _, err := range l.Naming(ctx, "b1:3181") {
		require.NoError(t, err)
		named++
	}
	require.Equal(t, total/100, named)
	t.Logf("listed %d ledgers in %v, with records in %v", total, listed, time.Since(begun)-listed)
}
