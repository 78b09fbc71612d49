package zkmeta

import (
	"context"
	"fmt"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/metadata"
)

// TestWatcherReadsEachPathOnce: what is asked for several times is read once, parents before what is below them.
func TestWatcherReadsEachPathOnce(t *testing.T) {
	w := newWatcher(nil)
	for _, p := range []string{"/m/b/2", "/m/b", "/m/a", "/m/b/1", "/m"} {
		w.touch(p, lookData)
		w.touch(p, lookChildren)
	}
	var got []string
	for path, what, ok := w.next(); ok; path, what, ok = w.next() {
		require.Equal(t, lookData|lookChildren, what)
		if got = append(got, path); path == "/m/a" {
			w.touch("/m/a/9", lookData|lookChildren) // while others wait
		}
	}
	require.Equal(t, []string{"/m", "/m/a", "/m/a/9", "/m/b", "/m/b/1", "/m/b/2"}, got)
}

// TestWatcherForgetsWhatIsBelow: a key that has gone takes with it what was below, and nothing beside it.
func TestWatcherForgetsWhatIsBelow(t *testing.T) {
	w := newWatcher(nil)
	ctx := context.Background()
	var events []metadata.Event
	done := make(chan struct{})
	go func() {
		defer close(done)
		for e := range w.out {
			events = append(events, e)
		}
	}()
	want := []string{"/m/a"}
	for _, dir := range []string{"/m/a", "/m/ab"} {
		require.NoError(t, w.put(ctx, dir, nil, &zk.Stat{}))
		for i := range 1000 {
			key := fmt.Sprintf("%s/%04d", dir, i)
			require.NoError(t, w.put(ctx, key, nil, &zk.Stat{}))
			if dir == "/m/a" {
				want = append(want, key)
			}
		}
	}
	require.NoError(t, w.gone(ctx, "/m/a"))
	require.NoError(t, w.gone(ctx, "/m/a"), "a second time: nothing more to tell")
	close(w.out)
	<-done
	var got []string
	for _, e := range events {
		if e.Kind == metadata.EventDelete {
			got = append(got, e.KV.Key)
		}
	}
	require.Equal(t, want, got)
	require.Len(t, w.told, 1001)
	require.Len(t, w.below, 2)
	require.Len(t, w.below["/m/ab"], 1000)
}
