package ledgerclient

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/metadata/memmeta"
	"github.com/binderylog/bindery/internal/wire"
)

// requireSaidOnce fails if an error says a thing twice. Clauses are what colons, semicolons and parentheses part; what a bookie
// said and where it is may come once per bookie.
func requireSaidOnce(t *testing.T, err error) {
	t.Helper()
	require.Error(t, err)
	text := err.Error()
	require.NotContains(t, text, "\n", "one line")
	seen := map[string]bool{}
	for i, part := range strings.FieldsFunc(text, func(r rune) bool { return r == ';' }) {
		for _, clause := range strings.FieldsFunc(part, func(r rune) bool { return r == ':' || r == '(' || r == ')' }) {
			clause = strings.TrimSpace(clause)
			if i > 0 && !strings.Contains(clause, "ledger") {
				continue // the second bookie's answer may be that of the first
			}
			require.False(t, seen[clause], "%q is said twice: %s", clause, text)
			seen[clause] = true
		}
	}
	require.LessOrEqual(t, strings.Count(text, "not enough bookies"), 1, text)
	require.LessOrEqual(t, strings.Count(text, "no such ledger"), 1, text)
	require.LessOrEqual(t, strings.Count(text, "digest mismatch"), 1, text)
}

func TestErrorsSayThingsOnce(t *testing.T) {
	ctx := testContext(t)
	c := newCluster(t, 3)
	client, store := c.client(func(o *Options) { o.MetadataTimeout = 3 * time.Second })
	check := func(err, kind error, text string) {
		t.Helper()
		requireSaidOnce(t, err)
		if kind != nil {
			require.ErrorIs(t, err, kind)
		}
		require.Equal(t, text, err.Error())
	}
	_, err := client.Create(ctx, CreateOptions{Quorum: quorum(5, 3, 2)})
	check(err, ErrNotEnoughBookies, "create ledger: not enough bookies: 5 wanted, 3 of 3 registered can be used")
	_, err = client.Open(ctx, 99, OpenOptions{})
	check(err, ErrNoSuchLedger, "open ledger 99: no such ledger")
	_, err = client.Metadata(ctx, 99)
	check(err, ErrNoSuchLedger, "ledger 99: no such ledger")
	check(client.Delete(ctx, 99), ErrNoSuchLedger, "delete ledger 99: no such ledger")
	_, err = Dial(ctx, "ftp://x", nil)
	require.ErrorContains(t, err, "ftp://x")
	requireSaidOnce(t, err)

	w, err := client.Create(ctx, CreateOptions{Password: []byte("p")})
	require.NoError(t, err)
	appendMany(t, w, 0, 5)
	_, err = client.Open(ctx, w.ID(), OpenOptions{})
	check(err, ErrUnauthorized, "open ledger 0: unauthorized: wrong password")

	// A bookie that sends something else than what was written, one that has nothing, one that can not read.
	c.awaitCopies(w.ID(), 5)
	require.NoError(t, w.Close(ctx))
	r, err := client.Open(ctx, w.ID(), OpenOptions{Admin: true})
	require.NoError(t, err)
	for i, b := range r.Metadata().Fragments[0].Bookies {
		switch i {
		case 0:
			c.bookie(b).corrupt(w.ID(), 2)
		case 1:
			c.bookie(b).forget(w.ID(), 2)
		default:
			c.bookie(b).setFault(func(q *wire.Request) fault {
				return fault{act: (q.Op == wire.OpRead || q.Op == wire.OpBatchRead) && q.Entry == 2, code: wire.IO}
			})
		}
	}
	for _, err = range r.Entries(ctx, 2, 2) {
		requireSaidOnce(t, err)
		require.ErrorIs(t, err, ErrDigestMismatch)
		require.ErrorContains(t, err, "ledger 0 entry 2: 0 of 1 bookies needed: bookie ")
		for _, b := range r.Metadata().Fragments[0].Bookies {
			require.ErrorContains(t, err, "bookie "+string(b)+": ", "every bookie's answer is in it")
		}
	}
	_, err = w.Append(ctx, []byte("x"))
	check(err, ErrClosed, "ledger 0: writer: closed")
	w, err = client.Create(ctx, CreateOptions{})
	require.NoError(t, err)
	_, err = client.Open(ctx, w.ID(), OpenOptions{Recover: true})
	require.NoError(t, err)
	_, err = w.Append(ctx, []byte("x"))
	requireSaidOnce(t, err)
	require.ErrorIs(t, err, ErrFenced)
	require.Regexp(t, `^ledger 1 entry 0: ledger is fenced by another client \(bookie b[012]: add: .*\)$`, err.Error())
	var be *BookieError
	require.ErrorAs(t, err, &be, "the error says which bookie it was")

	// A store that does not answer.
	w, err = client.Create(ctx, CreateOptions{})
	require.NoError(t, err)
	appendMany(t, w, 0, 5)
	store.SetFaults(func(memmeta.Op) memmeta.Fault { return memmeta.Fault{Err: context.DeadlineExceeded} })
	_, err = client.Open(ctx, w.ID(), OpenOptions{})
	requireSaidOnce(t, err)
	err = w.Close(ctx)
	requireSaidOnce(t, err)
	store.SetFaults(nil)

	// Too few bookies for an append, and for a recovery.
	c.bookies[2].setFault(nil)
	dying, _ := c.client()
	left, err := dying.Create(ctx, CreateOptions{})
	require.NoError(t, err)
	appendMany(t, left, 0, 5)
	require.NoError(t, dying.Close())
	w, err = client.Create(ctx, CreateOptions{})
	require.NoError(t, err)
	appendMany(t, w, 0, 5)
	c.bookies[0].stop()
	c.bookies[1].stop()
	_, err = w.Append(ctx, []byte("x"))
	requireSaidOnce(t, err)
	require.ErrorIs(t, err, ErrNotEnoughBookies)
	other, _ := c.client()
	_, err = other.Open(ctx, left.ID(), OpenOptions{Recover: true})
	requireSaidOnce(t, err)
	require.ErrorIs(t, err, ErrNotEnoughBookies)
	require.ErrorContains(t, err, "recover: ledger 3: too few bookies answered: bookie b")
	require.NoError(t, other.Close())
	_, err = other.Open(ctx, left.ID(), OpenOptions{})
	check(err, ErrClosed, "closed")
}
