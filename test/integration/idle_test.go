package integration

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/ledgerclient"
)

// TestIdleTailKeepsItsBookie: a reader follows a ledger to which nothing is added for several times PeerTimeout. The bookie holds
// its poll back, answers pings meanwhile, and is not taken for dead; the next entry arrives at once.
func TestIdleTailKeepsItsBookie(t *testing.T) {
	c := newCluster(t, 3)
	client := c.client(func(o *ledgerclient.Options) {
		o.PeerTimeout = 2 * time.Second // a busy machine may keep a ping waiting for half a second
		o.LongPollTimeout = 20 * time.Second
	})
	w, err := client.Create(testContext(t), ledgerclient.CreateOptions{})
	require.NoError(t, err)
	_, err = w.Append(testContext(t), payload(0))
	require.NoError(t, err)
	r, err := client.Open(testContext(t), w.ID(), ledgerclient.OpenOptions{})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(testContext(t))
	defer cancel()
	got := make(chan ledgerclient.EntryID, 10)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for e, err := range r.Tail(ctx, 0) {
			if err != nil {
				return
			}
			got <- e.ID
		}
	}()
	require.Equal(t, ledgerclient.EntryID(0), <-got)
	time.Sleep(8 * time.Second) // polls are held back longer and longer, at last for longer than PeerTimeout
	_, err = w.Append(testContext(t), payload(1))
	require.NoError(t, err)
	require.Equal(t, ledgerclient.EntryID(1), <-got)
	cancel()
	<-done
	var out bytes.Buffer
	client.WritePrometheus(&out)
	pings, dead := 0, ""
	for line := range strings.Lines(out.String()) {
		switch {
		case strings.HasPrefix(line, "bindery_client_dead_peers_total "):
			dead = line
		case strings.HasPrefix(line, `bindery_client_requests_total{op="ping"`) && strings.Contains(line, `result="ok"`) && !strings.HasSuffix(line, " 0\n"):
			pings++
		}
	}
	require.Equal(t, "bindery_client_dead_peers_total 0\n", dead)
	require.Positive(t, pings)
	require.NoError(t, w.Close(testContext(t)))
}

// TestAdvancedWriterOnRealBookies: entries in the wrong order are read back in the right one, after a recovery that ends the
// ledger at the gap.
func TestAdvancedWriterOnRealBookies(t *testing.T) {
	ctx := testContext(t)
	c := newCluster(t, 4)
	client := c.client()
	w, err := client.CreateAdvanced(ctx, ledgerclient.CreateOptions{Quorum: quorum(3, 2, 2)})
	require.NoError(t, err)
	acks := make(chan error, 100)
	for e := ledgerclient.EntryID(49); e >= 0; e-- {
		if e != 40 {
			w.AppendAsync(e, payload(e), func(_ ledgerclient.EntryID, err error) { acks <- err })
		}
	}
	for range 40 {
		require.NoError(t, <-acks)
	}
	other := c.client()
	r, err := other.Open(ctx, w.ID(), ledgerclient.OpenOptions{Recover: true})
	require.NoError(t, err)
	require.Equal(t, ledgerclient.EntryID(39), r.LastAddConfirmed())
	readAll(t, r, 0, 39)
	require.Error(t, w.Append(ctx, 40, payload(40)))
	for range 9 {
		require.Error(t, <-acks)
	}
	require.Equal(t, ledgerclient.EntryID(39), c.record(w.ID()).LastEntry)
}
