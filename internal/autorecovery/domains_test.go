package autorecovery

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/bookie"
	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/ledgerclient"
)

// TestLostDomain: bookies publish their domains; ledgers are spread over all of them, and when a whole domain is lost its
// copies go to the others, still spread as far as they go.
func TestLostDomain(t *testing.T) {
	k := newKit(t, 0)
	domains := map[ledger.BookieID]string{}
	for i := range 7 {
		domain := []string{"/eu/a", "/eu/b", "/us/c"}[i%3]
		m := k.add(func(o *bookie.Options) { o.Domain = domain })
		domains[m.id] = domain
	}
	of := func(m *ledgerclient.Metadata) map[string]int {
		n := map[string]int{}
		for _, b := range m.Last().Bookies {
			n[domains[b]]++
		}
		return n
	}
	k.eventually("the client knows every bookie", func() bool {
		view, err := k.client.Candidates(k.ctx())
		require.NoError(t, err)
		return len(view) == len(k.members)
	})
	const entries = 20
	var ids []ledger.ID
	for range 12 {
		id := k.closed(quorum(3, 3, 2), entries)
		require.Equal(t, map[string]int{"/eu/a": 1, "/eu/b": 1, "/us/c": 1}, of(k.record(id)))
		ids = append(ids, id)
	}
	node := k.node("n1")
	var lost []ledger.BookieID
	for _, m := range k.members {
		if domains[m.id] == "/us/c" {
			m.stop()
			lost = append(lost, m.id)
		}
	}
	k.eventually("nothing is left on the lost domain", func() bool {
		for _, id := range ids {
			if slices.ContainsFunc(k.record(id).Last().Bookies, func(b ledger.BookieID) bool { return slices.Contains(lost, b) }) {
				return false
			}
		}
		return true
	})
	k.unmarked()
	for _, id := range ids {
		n := of(k.record(id))
		require.Equal(t, 3, n["/eu/a"]+n["/eu/b"])
		require.Len(t, n, 2, "both that are left")
		k.check(id, entries)
	}
	node.stop()
	for _, m := range k.members { // what a bookie publishes is what was configured, across restarts
		if m.b == nil {
			require.NoError(t, m.start())
		}
		b, err := k.views.Bookies.Resolve(k.ctx(), m.id)
		require.NoError(t, err)
		require.Equal(t, domains[m.id], b.Info.Properties[metadata.PropertyDomain])
	}
}
