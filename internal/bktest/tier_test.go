package bktest

import (
	"bytes"
	"context"
	"log/slog"
	"math/rand/v2"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/digest"
	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/internal/metadata/memmeta"
	"github.com/binderylog/bindery/internal/wire"
	"github.com/binderylog/bindery/ledgerclient"
	"github.com/binderylog/bindery/offload"
)

// calm is a cluster of three bookies without trouble, an application, and a tier whose worker offloads and releases what is closed.
type calm struct {
	t      *testing.T
	c      *Cluster
	k      *ledgerclient.Client
	tier   *offload.Reader
	record *offload.Records
}

const calmPassword = "secret"

func calmly(t *testing.T, fn func(s *calm)) {
	synctest.Test(t, func(t *testing.T) {
		h := NewHistory()
		cfg := Config{Seed: 1, Bookies: 3, Latency: time.Millisecond, Dirs: [2]int{1, 1}, Tier: Tier{Workers: 1, Geometry: offload.Geometry{Data: 2, Parity: 1}, Lag: 5 * time.Second}}
		c := &Cluster{cfg: cfg, ctx: t.Context(), h: h, check: NewChecker(h), tree: memmeta.NewTree(), level: slog.LevelInfo, rng: rand.New(rand.NewPCG(1, 1)), ops: &opLog{}, books: &shelf{}}
		c.net = NewNet(1, cfg.Latency, c.check)
		c.tree.OnWrite(c.check.Wrote)
		c.tier = newTier(c)
		require.NoError(t, c.boot())
		c.tier.start()
		store := c.tree.Open()
		views := metadata.NewViews(store, metadata.DefaultRoot)
		o := c.patience("app")
		o.Offload = c.tier.targets("app")
		k, err := ledgerclient.Attach(store, views, o, c.net.Join("app").Dial)
		require.NoError(t, err)
		s := &calm{t: t, c: c, k: k, record: offload.NewRecords(views)}
		s.tier, err = offload.NewReader(offload.ReaderOptions{Records: s.record, Targets: o.Offload})
		require.NoError(t, err)
		fn(s)
		c.tier.close()
		require.NoError(t, k.Close())
		for _, m := range c.members {
			m.stop()
		}
		if t.Failed() {
			_, _ = h.WriteTo(t.Output())
		}
		require.Empty(t, h.Broken())
	})
}

// write writes a ledger of n entries and closes it.
func (s *calm) write(n int64) ledgerclient.LedgerID {
	w, err := s.k.Create(s.t.Context(), ledgerclient.CreateOptions{Password: []byte(calmPassword)})
	require.NoError(s.t, err)
	for e := range n {
		s.append(w, payload(w.ID(), e))
	}
	require.NoError(s.t, w.Close(s.t.Context()))
	return w.ID()
}

// append waits for one entry. Append itself keeps channels for the next one, which may be in another bubble.
func (s *calm) append(w *ledgerclient.Writer, data []byte) {
	done := make(chan error, 1)
	w.AppendAsync(data, func(_ ledgerclient.EntryID, err error) { done <- err })
	require.NoError(s.t, <-done)
}

func (s *calm) open(id ledgerclient.LedgerID, password string) (*ledgerclient.Reader, error) {
	return s.k.Open(s.t.Context(), id, ledgerclient.OpenOptions{Password: []byte(password)})
}

// alone waits until the tier alone has a ledger: released, and dropped by every bookie.
func (s *calm) alone(id ledgerclient.LedgerID) {
	m := s.c.check.recordOf(int64(id))
	copies, err := s.k.Copies(id, m)
	require.NoError(s.t, err)
	for range 120 {
		left := 0
		for _, b := range s.c.members {
			if _, answer, _ := copies.Read(s.t.Context(), ledger.BookieID(b.name), 0); answer != ledger.AnswerNegative {
				left++
			}
		}
		r, _, err := s.record.Read(s.t.Context(), id)
		if left == 0 && err == nil && r.State == offload.StateReleased {
			return
		}
		elapse(s.t.Context(), time.Second)
	}
	require.Fail(s.t, "the bookies keep the ledger")
}

func TestStatement29ReleaseWhileAReaderScansBookies(t *testing.T) {
	calmly(t, func(s *calm) {
		t := s.t
		const last = 399
		id := s.write(last + 1)
		r, err := s.open(id, calmPassword)
		require.NoError(t, err)
		next := int64(0)
		for e, err := range r.Entries(t.Context(), 0, last) {
			require.NoError(t, err)
			require.Equal(t, next, int64(e.ID), "no gap and no repeat")
			require.True(t, bytes.Equal(payload(id, next), e.Data))
			if next++; next == 100 {
				s.alone(id)
				_, _, err := s.record.Ledger(t.Context(), id)
				require.ErrorIs(t, err, metadata.ErrNoLedger, "released meanwhile")
			}
			elapse(t.Context(), 50*time.Millisecond)
		}
		require.EqualValues(t, last+1, next)
		lac, err := r.ReadLastAddConfirmed(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, last, lac)
		require.NoError(t, r.Close())
	})
}

func TestStatement35WrongPasswordFailsAsBefore(t *testing.T) {
	calmly(t, func(s *calm) {
		t := s.t
		id := s.write(20)
		_, before := s.open(id, "wrong")
		require.ErrorIs(t, before, ledgerclient.ErrUnauthorized)
		_, _, err := s.record.Ledger(t.Context(), id)
		require.NoError(t, err, "not released yet")
		s.alone(id)
		_, after := s.open(id, "wrong")
		require.ErrorIs(t, after, ledgerclient.ErrUnauthorized)
		require.Equal(t, before.Error(), after.Error())
		_, none := s.open(id, "")
		require.ErrorIs(t, none, ledgerclient.ErrUnauthorized)
		r, err := s.open(id, calmPassword)
		require.NoError(t, err)
		require.NoError(t, r.Close())
	})
}

func TestStatement45RestoreIntoANewLedgerAndNotInPlace(t *testing.T) {
	calmly(t, func(s *calm) {
		t := s.t
		id := s.write(60)
		s.alone(id)
		h, err := s.tier.Open(t.Context(), id)
		require.NoError(t, err)
		w, err := s.k.Create(t.Context(), ledgerclient.CreateOptions{Digest: h.Metadata().Digest, Password: h.Metadata().Password, Custom: h.Metadata().Custom})
		require.NoError(t, err)
		for e, err := range h.Entries(t.Context(), 0, h.LastEntry()) {
			require.NoError(t, err)
			s.append(w, e.Payload)
		}
		require.NoError(t, w.Close(t.Context()))
		require.NotEqual(t, id, w.ID())
		r, err := s.open(w.ID(), calmPassword)
		require.NoError(t, err)
		require.EqualValues(t, 59, r.LastAddConfirmed())
		next := int64(0)
		for e, err := range r.Entries(t.Context(), 0, 59) {
			require.NoError(t, err)
			require.True(t, bytes.Equal(payload(id, next), e.Data))
			next++
		}
		require.EqualValues(t, 60, next)
		require.NoError(t, r.Close())

		// Under the old id: the client does not create it, and a bookie that remembers it takes no add.
		_, err = s.k.Create(t.Context(), ledgerclient.CreateOptions{ID: &id})
		require.ErrorIs(t, err, ledgerclient.ErrLedgerExists)
		require.ErrorContains(t, err, "was offloaded and is RELEASED: its id may not be used again")
		require.Equal(t, wire.Fenced, s.add(s.c.members[0], id))
	})
}

// add sends one add to a bookie and returns its answer.
func (s *calm) add(m *member, id ledgerclient.LedgerID) wire.Code {
	host := s.c.net.Join("old writer")
	defer host.Kill(false)
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	nc, err := host.Dial(ctx, m.name+":3181")
	require.NoError(s.t, err)
	defer func() { _ = nc.Close() }()
	return addTo(s.t, nc, id)
}

func addTo(t *testing.T, nc net.Conn, id ledgerclient.LedgerID) wire.Code {
	key := digest.MasterKey([]byte(calmPassword))
	d, err := digest.New(ledger.DigestCRC32C, nil)
	require.NoError(t, err)
	data := payload(id, 0)
	r := wire.Request{Proto: wire.V3, Version: byte(wire.V3), Op: wire.OpAdd, TxnID: 1, Ledger: int64(id), Entry: 0, Key: key[:], HasKey: true, Body: d.Seal(nil, int64(id), 0, -1, int64(len(data)), data)}
	out, err := wire.AppendRequest(nil, &r)
	require.NoError(t, err)
	go func() { _, _ = nc.Write(out) }()
	answer, ok := readResponse(nc)
	require.True(t, ok)
	return answer.Code
}
