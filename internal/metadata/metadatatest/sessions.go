package metadatatest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/metadata"
)

func session(t *testing.T, s metadata.Store) metadata.Session {
	ss, err := s.Session(contextOf(t))
	require.NoError(t, err)
	require.NotEmpty(t, ss.ID())
	return ss
}

func ended(t *testing.T, s metadata.Session) {
	select {
	case <-s.Done():
	case <-time.After(patience):
		t.Fatal("the session did not end")
	}
}

// gone waits until a key has vanished.
func gone(t *testing.T, s metadata.Store, key string) {
	ctx := contextOf(t)
	for ev := range s.Watch(ctx, key) {
		if ev.Kind == metadata.EventDelete && ev.KV.Key == key {
			return
		}
		if ev.Kind == metadata.EventSynced {
			if kvs, err := s.Keys(ctx, key, "", 1); err == nil && len(kvs) == 0 {
				return
			}
		}
	}
	t.Fatalf("%s did not go", key)
}

func putEphemeral(t *testing.T, s metadata.Store, key, value string, ss metadata.Session, v metadata.Version) metadata.Version {
	r, err := s.Txn(contextOf(t), metadata.Txn{Puts: []metadata.Put{{Key: key, Value: []byte(value), Version: v, Session: ss}}})
	require.NoError(t, err)
	return r.Versions[0]
}

func testEphemeral(t *testing.T, c Cluster) {
	ctx, d := contextOf(t), freshDir()
	owner, other := open(t, c), open(t, c)
	s := session(t, owner)
	require.Equal(t, s.ID(), session(t, owner).ID(), "one session per store")
	require.NotEqual(t, s.ID(), session(t, other).ID())

	v := putEphemeral(t, owner, d+"/e", "x", s, metadata.Absent)
	kv, err := other.Get(ctx, d+"/e")
	require.NoError(t, err)
	require.Equal(t, s.ID(), kv.Session)
	require.Equal(t, v, kv.Version)
	_, err = other.Txn(ctx, metadata.Txn{Puts: []metadata.Put{{Key: d + "/e", Version: metadata.Absent, Session: session(t, other)}}})
	require.ErrorIs(t, err, metadata.ErrExists)

	_, err = owner.Put(ctx, d+"/p", nil, metadata.Absent)
	require.NoError(t, err)
	c.EndSession(t, owner, s)
	ended(t, s)
	gone(t, other, d+"/e")
	_, err = other.Get(ctx, d+"/p")
	require.NoError(t, err, "persistent keys stay")

	// The owner may start again.
	n := session(t, owner)
	require.NotEqual(t, s.ID(), n.ID())
	putEphemeral(t, owner, d+"/e", "y", n, metadata.Absent)
}

func testEphemeralClose(t *testing.T, c Cluster) {
	ctx, d := contextOf(t), freshDir()
	other := open(t, c)
	owner := c.Open(t)
	s := session(t, owner)
	putEphemeral(t, owner, d+"/e", "x", s, metadata.Absent)
	require.NoError(t, owner.Close())
	ended(t, s)
	_, err := other.Get(ctx, d+"/e")
	require.ErrorIs(t, err, metadata.ErrNotFound, "a clean close takes the keys along at once")
	require.NoError(t, owner.Close(), "closing twice")
}

// testEphemeralMoves checks that a key belongs to the session that wrote it last, or to none.
func testEphemeralMoves(t *testing.T, c Cluster) {
	ctx, d := contextOf(t), freshDir()
	a, b := open(t, c), open(t, c)
	sa, sb := session(t, a), session(t, b)
	v1 := putEphemeral(t, a, d+"/moved", "a", sa, metadata.Absent)
	putEphemeral(t, b, d+"/moved", "b", sb, v1)
	v2 := putEphemeral(t, a, d+"/kept", "a", sa, metadata.Absent)
	_, err := a.Put(ctx, d+"/kept", []byte("now persistent"), v2)
	require.NoError(t, err)
	putEphemeral(t, a, d+"/last", "a", sa, metadata.Absent)

	c.EndSession(t, a, sa)
	ended(t, sa)
	gone(t, b, d+"/last")
	kv, err := b.Get(ctx, d+"/moved")
	require.NoError(t, err)
	require.Equal(t, sb.ID(), kv.Session)
	kv, err = b.Get(ctx, d+"/kept")
	require.NoError(t, err)
	require.Empty(t, kv.Session)
}

func testSessionLost(t *testing.T, c Cluster) {
	ctx, d := contextOf(t), freshDir()
	s := open(t, c)
	old := session(t, s)
	c.EndSession(t, s, old)
	put := metadata.Txn{Puts: []metadata.Put{{Key: d + "/e", Version: metadata.Absent, Session: old}}}
	_, err := s.Txn(ctx, put)
	require.ErrorIs(t, err, metadata.ErrSessionLost)
	ended(t, old)
	_, err = s.Get(ctx, d+"/e")
	require.ErrorIs(t, err, metadata.ErrNotFound)
	put.Puts[0].Session = session(t, s)
	_, err = s.Txn(ctx, put)
	require.NoError(t, err)
}

// next takes one event from a watch.
func next(t *testing.T, ch <-chan metadata.Event) metadata.Event {
	select {
	case e, ok := <-ch:
		require.True(t, ok, "the watch ended")
		return e
	case <-time.After(patience):
		t.Fatal("no event")
	}
	return metadata.Event{}
}

func nextIs(t *testing.T, ch <-chan metadata.Event, kind metadata.EventKind, key, value string) metadata.Event {
	e := next(t, ch)
	require.Equal(t, kind, e.Kind)
	require.Equal(t, key, e.KV.Key)
	require.Equal(t, value, string(e.KV.Value))
	return e
}

func testWatch(t *testing.T, c Cluster) {
	ctx, d := contextOf(t), freshDir()
	s, other := open(t, c), open(t, c)
	v1, err := s.Put(ctx, d+"/a", []byte("1"), metadata.Absent)
	require.NoError(t, err)
	_, err = s.Put(ctx, d+"0", nil, metadata.Absent)
	require.NoError(t, err)

	ch := s.Watch(ctx, d+"/")
	e := nextIs(t, ch, metadata.EventPut, d+"/a", "1")
	require.Equal(t, v1, e.KV.Version)
	require.Equal(t, metadata.EventSynced, next(t, ch).Kind)

	_, err = other.Put(ctx, d+"0", []byte("not ours"), metadata.Any)
	require.NoError(t, err)
	v2, err := other.Put(ctx, d+"/a", []byte("2"), v1)
	require.NoError(t, err)
	e = nextIs(t, ch, metadata.EventPut, d+"/a", "2")
	require.Equal(t, v2, e.KV.Version)

	es := session(t, other)
	putEphemeral(t, other, d+"/e", "eph", es, metadata.Absent)
	e = nextIs(t, ch, metadata.EventPut, d+"/e", "eph")
	require.Equal(t, es.ID(), e.KV.Session)
	require.NoError(t, other.Delete(ctx, d+"/a", v2))
	nextIs(t, ch, metadata.EventDelete, d+"/a", "")
	c.EndSession(t, other, es)
	nextIs(t, ch, metadata.EventDelete, d+"/e", "")

	_, err = s.Txn(ctx, metadata.Txn{Puts: []metadata.Put{
		{Key: d + "/x", Value: []byte("x"), Version: metadata.Absent}, {Key: d + "/y", Value: []byte("y"), Version: metadata.Absent},
	}})
	require.NoError(t, err)
	got := map[string]string{}
	for range 2 {
		e := next(t, ch)
		got[e.KV.Key] = string(e.KV.Value)
	}
	require.Equal(t, map[string]string{d + "/x": "x", d + "/y": "y"}, got)
}

// testWatchSlowReader writes more than any buffer holds before the reader looks. It may miss intermediate values but must
// end with the last one of each key, and never see time go backwards.
func testWatchSlowReader(t *testing.T, c Cluster) {
	ctx, d := contextOf(t), freshDir()
	s := open(t, c)
	ch := s.Watch(ctx, d+"/")
	require.Equal(t, metadata.EventSynced, next(t, ch).Kind)
	const keys, rounds = 10, 30
	want := map[string]string{}
	for r := range rounds {
		for k := range keys {
			key := fmt.Sprintf("%s/%d", d, k)
			if (r+k)%7 == 6 {
				require.NoError(t, s.Delete(ctx, key, metadata.Any))
				delete(want, key)
				continue
			}
			want[key] = fmt.Sprint(r)
			_, err := s.Put(ctx, key, []byte(want[key]), metadata.Any)
			require.NoError(t, err)
		}
	}
	_, err := s.Put(ctx, d+"/zz-end", nil, metadata.Absent)
	require.NoError(t, err)
	got := map[string]string{}
	versions := map[string]metadata.Version{}
	for {
		e := next(t, ch)
		if e.KV.Key == d+"/zz-end" {
			break
		}
		switch e.Kind {
		case metadata.EventPut:
			if last, told := versions[e.KV.Key]; told {
				require.Greater(t, e.KV.Version, last)
			}
			versions[e.KV.Key], got[e.KV.Key] = e.KV.Version, string(e.KV.Value)
		case metadata.EventDelete:
			require.Contains(t, got, e.KV.Key, "a delete of a key never reported")
			delete(got, e.KV.Key)
			delete(versions, e.KV.Key) // a key that is made again may count anew
		}
	}
	require.Equal(t, want, got)
}

func testWatchEnds(t *testing.T, c Cluster) {
	d := freshDir()
	s := c.Open(t)
	ctx, cancel := context.WithCancel(contextOf(t))
	byContext, byClose := s.Watch(ctx, d), s.Watch(contextOf(t), d)
	unread := s.Watch(contextOf(t), d) // nobody ever reads it
	cancel()
	drain(t, byContext)
	require.Equal(t, metadata.EventSynced, next(t, byClose).Kind)
	require.NoError(t, s.Close())
	drain(t, byClose)
	drain(t, unread)
	drain(t, s.Watch(contextOf(t), d))
}

// drain reads a channel until it is closed.
func drain(t *testing.T, ch <-chan metadata.Event) {
	deadline := time.After(patience)
	for {
		select {
		case _, ok := <-ch:
			if !ok {
				return
			}
		case <-deadline:
			t.Fatal("the watch did not end")
		}
	}
}

func testClosed(t *testing.T, c Cluster) {
	ctx, s := contextOf(t), c.Open(t)
	require.NoError(t, s.Close())
	_, err := s.Get(ctx, "/k")
	require.ErrorIs(t, err, metadata.ErrClosed)
	_, err = s.List(ctx, "/k", "", 1)
	require.ErrorIs(t, err, metadata.ErrClosed)
	_, err = s.Keys(ctx, "/k", "", 1)
	require.ErrorIs(t, err, metadata.ErrClosed)
	_, err = s.Put(ctx, "/k", nil, metadata.Any)
	require.ErrorIs(t, err, metadata.ErrClosed)
	require.ErrorIs(t, s.Delete(ctx, "/k", metadata.Any), metadata.ErrClosed)
	_, err = s.Sequence(ctx, "/k/ID-")
	require.ErrorIs(t, err, metadata.ErrClosed)
	_, err = s.Session(ctx)
	require.ErrorIs(t, err, metadata.ErrClosed)
}

// testCancelled checks that a call with a dead context does nothing and says so.
func testCancelled(t *testing.T, c Cluster) {
	s, k := open(t, c), freshDir()+"/k"
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := s.Put(ctx, k, nil, metadata.Any)
	require.ErrorIs(t, err, metadata.ErrUnavailable)
	require.ErrorIs(t, err, context.Canceled)
	_, err = s.Get(ctx, k)
	require.ErrorIs(t, err, metadata.ErrUnavailable)
	_, err = s.Get(contextOf(t), k)
	require.ErrorIs(t, err, metadata.ErrNotFound)
}
