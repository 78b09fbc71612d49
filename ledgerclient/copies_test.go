package ledgerclient

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/wire"
)

// TestRunsOfCopies: what one request brings is what single ones bring, as far as it goes, and what is sent together arrives.
func TestRunsOfCopies(t *testing.T) {
	ctx := testContext(t)
	c := newCluster(t, 4)
	client, _ := c.client()
	w, err := client.Create(ctx, CreateOptions{Quorum: quorum(3, 3, 3)})
	require.NoError(t, err)
	const n = 20
	for i := range n {
		_, err := w.Append(ctx, fmt.Appendf(nil, "entry %d", i))
		require.NoError(t, err)
	}
	c.awaitCopies(w.ID(), n-1)
	require.NoError(t, w.Close(ctx))
	m := c.record(w.ID())
	copies, err := client.Copies(w.ID(), m)
	require.NoError(t, err)
	from := m.Fragments[0].Bookies
	var whole [][]byte
	for e := range EntryID(n) {
		body, answer, err := copies.Read(ctx, from[0], e)
		require.NoError(t, err)
		require.Equal(t, ledger.AnswerOK, answer)
		whole = append(whole, body)
	}

	run := func(b BookieID, first, last EntryID, bytes int) [][]byte {
		bodies, err := copies.ReadRun(ctx, b, first, last, bytes)
		require.NoError(t, err)
		return bodies
	}
	require.Equal(t, whole, run(from[0], 0, n-1, 64<<10))
	require.Equal(t, whole[3:8], run(from[0], 3, 7, 64<<10))
	require.Equal(t, whole[5:6], run(from[0], 5, 9, 1), "one at least")
	require.Equal(t, whole[15:], run(from[0], 15, n+5, 64<<10))
	c.bookie(from[1]).forget(w.ID(), 4)
	require.Equal(t, whole[:4], run(from[1], 0, n-1, 64<<10), "up to a gap")
	require.Empty(t, run(from[1], 4, n-1, 64<<10))
	c.bookie(from[2]).corrupt(w.ID(), 6)
	require.Equal(t, whole[2:6], run(from[2], 2, n-1, 64<<10), "up to a bad digest")
	require.Empty(t, run(from[2], 6, n-1, 64<<10))

	var other *fakeBookie
	for _, b := range c.bookies {
		if !m.Names(b.id) {
			other = b
		}
	}
	require.NoError(t, copies.WriteRun(ctx, other.id, 0, whole))
	require.Equal(t, whole, run(other.id, 0, n-1, 64<<10))
	refuse := func(r *wire.Request) fault {
		return fault{act: r.Op == wire.OpAdd && r.Entry == 7, code: wire.IO}
	}
	other.setFault(refuse)
	err = copies.WriteRun(ctx, other.id, 5, whole[5:10])
	require.ErrorContains(t, err, "copy entry 7")
	var at *BookieError
	require.ErrorAs(t, err, &at)
	require.Equal(t, other.id, at.Bookie)
	other.stop()
	require.Error(t, copies.WriteRun(ctx, other.id, 0, whole))
}

// TestRunOfABookieWithoutBatchReads: it hangs up once, is not asked again, and single reads go on.
func TestRunOfABookieWithoutBatchReads(t *testing.T) {
	ctx := testContext(t)
	c := newCluster(t, 1)
	c.bookies[0].oldV2 = true
	client, _ := c.client()
	w, err := client.Create(ctx, CreateOptions{Quorum: quorum(1, 1, 1)})
	require.NoError(t, err)
	_, err = w.Append(ctx, []byte("a"))
	require.NoError(t, err)
	require.NoError(t, w.Close(ctx))
	other, _ := c.client() // whose connection has carried nothing else
	copies, err := other.Copies(w.ID(), c.record(w.ID()))
	require.NoError(t, err)
	for range 2 {
		bodies, err := copies.ReadRun(ctx, "b0", 0, 5, 64<<10)
		require.NoError(t, err)
		require.Empty(t, bodies)
	}
	require.True(t, other.peer("b0").noBatch.Load())
	body, answer, err := copies.Read(ctx, "b0", 0)
	require.NoError(t, err)
	require.Equal(t, ledger.AnswerOK, answer)
	require.NotEmpty(t, body)
}
