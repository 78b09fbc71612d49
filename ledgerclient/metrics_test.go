package ledgerclient

import (
	"bytes"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/wire"
)

// figure sums the samples of a metric whose labels contain all the given texts.
func figure(t *testing.T, c *Client, name string, labels ...string) float64 {
	t.Helper()
	var out bytes.Buffer
	c.WritePrometheus(&out)
	sum := 0.0
	found := false
	for _, line := range bytes.Split(out.Bytes(), []byte("\n")) {
		m := regexp.MustCompile(`^(\w+)(\{.*\})? (\S+)$`).FindSubmatch(line)
		if m == nil || string(m[1]) != name {
			continue
		}
		ok := true
		for _, l := range labels {
			ok = ok && bytes.Contains(m[2], []byte(l))
		}
		if ok {
			v, err := strconv.ParseFloat(string(m[3]), 64)
			require.NoError(t, err)
			sum, found = sum+v, true
		}
	}
	require.True(t, found, "no %s %v in\n%s", name, labels, out.String())
	return sum
}

func TestMetrics(t *testing.T) {
	ctx := testContext(t)
	c := newCluster(t, 4)
	client, _ := c.client()
	w, err := client.Create(ctx, CreateOptions{Quorum: quorum(3, 3, 2)})
	require.NoError(t, err)
	appendMany(t, w, 0, 49)
	require.Equal(t, 50.0, figure(t, client, "bindery_client_appends_total"))
	require.Equal(t, 1.0, figure(t, client, "bindery_client_open_writers"))
	require.Eventually(t, func() bool { return figure(t, client, "bindery_client_in_flight_bytes") == 0 }, 30*time.Second, time.Millisecond)
	require.Eventually(t, func() bool {
		return figure(t, client, "bindery_client_requests_total", `op="add"`, `result="ok"`) == 150
	}, 30*time.Second, time.Millisecond, "three copies of fifty entries")
	first := c.record(w.ID()).Last().Bookies[0]
	require.Equal(t, 50.0, figure(t, client, "bindery_client_requests_total", `op="add"`, `bookie="`+string(first)+`"`, `result="ok"`))
	require.Positive(t, figure(t, client, "bindery_client_request_seconds_count", `op="add"`, `bookie="`+string(first)+`"`))
	require.Equal(t, 0.0, figure(t, client, "bindery_client_ensemble_changes_total"))
	require.Equal(t, float64(64<<20), figure(t, client, "bindery_client_in_flight_limit_bytes"))

	c.bookie(first).stop()
	last := EntryID(59)
	appendMany(t, w, 50, last)
	require.Eventually(t, func() bool { // two of three acknowledge without it, so its death may be noticed a little later
		last++
		appendMany(t, w, last, last)
		return figure(t, client, "bindery_client_ensemble_changes_total") == 1
	}, 30*time.Second, time.Millisecond)
	require.Equal(t, 1.0, figure(t, client, "bindery_client_quarantined_bookies"))
	require.GreaterOrEqual(t, figure(t, client, "bindery_client_quarantines_total"), 1.0)

	r, err := client.Open(ctx, w.ID(), OpenOptions{Recover: true})
	require.NoError(t, err)
	require.Equal(t, 1.0, figure(t, client, "bindery_client_recoveries_total", `result="ok"`))
	require.Equal(t, 0.0, figure(t, client, "bindery_client_recoveries_total", `result="failed"`))
	require.Positive(t, figure(t, client, "bindery_client_requests_total", `op="fencing_read"`))
	readAll(t, r, 0, last)
	require.Positive(t, figure(t, client, "bindery_client_requests_total", `op="batch_read"`, `result="ok"`))

	// A digest that does not fit, and a read that is answered late.
	bookies := r.Metadata().Last().Bookies
	for _, b := range bookies { // earlier entries may have two copies for good
		require.Eventually(t, func() bool { _, ok := c.bookie(b).holds(w.ID(), last); return ok }, 30*time.Second, time.Millisecond)
	}
	c.bookie(bookies[0]).corrupt(w.ID(), last)
	c.bookie(bookies[1]).corrupt(w.ID(), last)
	readAll(t, r, last, last)
	r.prefer.Store(0)
	c.bookie(bookies[0]).setFault(func(q *wire.Request) fault { return fault{drop: q.Op == wire.OpRead || q.Op == wire.OpBatchRead} })
	c.bookie(bookies[1]).setFault(func(q *wire.Request) fault { return fault{drop: q.Op == wire.OpRead || q.Op == wire.OpBatchRead} })
	client.peer(bookies[2]).quarantined.Store(1 << 40) // asked last
	readAll(t, r, last-1, last-1)
	require.GreaterOrEqual(t, figure(t, client, "bindery_client_speculative_reads_total"), 1.0)
	require.GreaterOrEqual(t, figure(t, client, "bindery_client_speculative_reads_won_total"), 1.0)
}

// TestMetricsAreWellFormed: every sample has a type line of its own family, and names follow the convention.
func TestMetricsAreWellFormed(t *testing.T) {
	c := newCluster(t, 3)
	client, _ := c.client()
	w, err := client.Create(testContext(t), CreateOptions{})
	require.NoError(t, err)
	appendMany(t, w, 0, 3)
	for _, name := range client.Metrics().ListMetricNames() {
		require.Regexp(t, `^bindery_client_[a-z_]*(_total|_bytes|_seconds|_waiting|_writers|connections|_bookies)(\{.*\})?$`, name)
	}
}
