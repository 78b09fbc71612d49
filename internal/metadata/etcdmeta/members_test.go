package etcdmeta

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/binderylog/bindery/internal/freeport"
	"github.com/binderylog/bindery/internal/metadata"
)

// freePorts returns addresses that nobody uses.
func freePorts(t *testing.T, n int) (addresses []string) {
	ports, err := freeport.Some(n)
	require.NoError(t, err)
	for _, p := range ports {
		addresses = append(addresses, freeport.Address(p))
	}
	return addresses
}

// TestLeaderChange runs three members and stops the one that leads. Registrations, sessions and watches live on, and no
// acknowledged write is lost.
func TestLeaderChange(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	// The connections between members, which etcd's own transport opened, end by their read time-out of five seconds after
	// both sides have been closed. A process that closes its one member and ends does not see that.
	defer func() {
		err := goleak.Find()
		for end := time.Now().Add(30 * time.Second); err != nil && time.Now().Before(end); {
			err = goleak.Find() // waits a while itself
		}
		require.NoError(t, err)
	}()
	const n = 3
	clients, peers := freePorts(t, n), freePorts(t, n)
	var list []string
	for i, p := range peers {
		list = append(list, fmt.Sprintf("m%d=http://%s", i, p))
	}
	members := make([]*Embedded, n)
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		o := EmbeddedOptions{
			Dir: t.TempDir(), Name: fmt.Sprintf("m%d", i), ClientURL: clients[i], PeerURL: peers[i], Cluster: strings.Join(list, ","), UnsafeNoSync: true,
		}
		wg.Go(func() { members[i], errs[i] = StartEmbedded(ctx, o) })
	}
	wg.Wait()
	for i, m := range members {
		require.NoError(t, errs[i])
		defer m.Close()
	}
	s, err := Open(ctx, Options{Endpoints: clients, SessionTTL: 30 * time.Second})
	require.NoError(t, err)
	defer s.Close()
	b := metadata.NewBookies(s, "/ledgers")
	reg, err := b.Register(ctx, "b1:3181", metadata.ServiceInfo{}, false, time.Second)
	require.NoError(t, err)
	events := s.Watch(ctx, "/n")
	require.Equal(t, metadata.EventSynced, (<-events).Kind)
	seen := make(chan int)
	go func() {
		last := 0
		for ev := range events {
			if ev.Kind == metadata.EventPut {
				_, _ = fmt.Sscan(string(ev.KV.Value), &last)
			}
			seen <- last
		}
		close(seen)
	}()
	drained := func(want int) {
		for {
			select {
			case got, ok := <-seen:
				require.True(t, ok, "the watch ended")
				if got == want {
					return
				}
			case <-ctx.Done():
				t.Fatalf("the watch never reported %d", want)
			}
		}
	}

	v, acked := metadata.Absent, 0
	count := func(times int) {
		for range times {
			nv, err := s.Put(ctx, "/n", fmt.Append(nil, acked+1), v)
			if errors.Is(err, metadata.ErrUnknownOutcome) || errors.Is(err, metadata.ErrVersion) {
				kv, gerr := s.Get(ctx, "/n")
				require.NoError(t, gerr)
				var have int
				_, gerr = fmt.Sscan(string(kv.Value), &have)
				require.NoError(t, gerr)
				require.GreaterOrEqual(t, have, acked, "an acknowledged write was lost")
				acked, nv, err = have, kv.Version, nil
			} else if err == nil {
				acked++
			}
			require.NoError(t, err)
			v = nv
		}
	}
	count(5)
	drained(acked)
	for range 2 { // a majority has to remain: one leaves, comes not back; then the lead moves once more by request
		for i, m := range members {
			if m != nil && m.etcd.Server.Leader() == m.etcd.Server.MemberID() {
				if live(members) == n {
					require.NoError(t, m.Close())
					members[i] = nil
				} else {
					require.NoError(t, m.etcd.Server.TryTransferLeadershipOnShutdown())
				}
				break
			}
		}
		count(5)
		drained(acked)
	}
	require.True(t, reg.Session.(*session).alive())
	got, err := b.Resolve(ctx, "b1:3181")
	require.NoError(t, err)
	require.Equal(t, reg.Session.ID(), got.Session)
	cancel()
	for range seen {
	}
}

func live(members []*Embedded) int {
	n := 0
	for _, m := range members {
		if m != nil {
			n++
		}
	}
	return n
}
