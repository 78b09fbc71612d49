//go:build crash

package crash

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/digest"
	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/wire"
)

// life starts the program with a point armed and waits until it serves, or has died at the point.
func life(t *testing.T, bin, dir, armed string) (p *process, alive bool) {
	t.Helper()
	log := dir + ".log"
	p, err := start(bin, dir, log, armed)
	require.NoError(t, err)
	t.Cleanup(p.kill)
	alive, err = p.awaitReady()
	require.NoError(t, err, "%s", tail(log, 40))
	return p, alive
}

// requireDiedAtPoint waits for the end of the program, which its armed point has to bring.
func requireDiedAtPoint(t *testing.T, p *process) {
	t.Helper()
	require.True(t, p.dies(), "the point was not met\n%s", tail(p.log, 40))
	at, err := p.diedAtPoint()
	require.NoError(t, err, "%s", tail(p.log, 40))
	require.True(t, at)
}

// order sends an operator's read-only order to bookie 1.
func (p *process) order(readOnly bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), answerTimeout)
	defer cancel()
	body := fmt.Sprintf(`{"readOnly":%t}`, readOnly)
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, p.Admin+"/api/v1/bookie/state/readonly", strings.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// TestCrashInAnOrder: the program is killed while an operator's order is being written, and while it is being taken back. A
// directory that has the order makes the bookie read-only.
func TestCrashInAnOrder(t *testing.T) {
	bin, dir := buildBinary(t), filepath.Join(t.TempDir(), "data")
	for _, order := range []bool{true, false} {
		p, alive := life(t, bin, dir, "bookie.order-written=1")
		require.True(t, alive)
		require.Error(t, p.order(order), "it dies before it answers")
		requireDiedAtPoint(t, p)
		p, alive = life(t, bin, dir, "")
		require.True(t, alive)
		_, err := os.Stat(filepath.Join(dir, "bookie-1", "ledgers", "current", "READONLY"))
		require.Equal(t, order, err == nil)
		require.Equal(t, order, p.isReadOnly(t))
		p.kill()
	}
}

func (p *process) isReadOnly(t *testing.T) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), answerTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.Admin+"/api/v2/status", nil)
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	var s struct {
		Bookie struct {
			ReadOnly bool `json:"read_only"`
		} `json:"bookie"`
	}
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&s))
	return s.Bookie.ReadOnly
}

// TestCrashInALoss: bookie 1 finds that it has lost something and is killed at each step of putting its ledgers into limbo.
// What is there is still served; what is not is unknown, never denied, and no writer's add is taken.
func TestCrashInALoss(t *testing.T) {
	const entries = 50
	bin, dir := buildBinary(t), filepath.Join(t.TempDir(), "data")
	p, alive := life(t, bin, dir, "")
	require.True(t, alive)
	r, err := openRecords(t.Context(), p.Metadata)
	require.NoError(t, err)
	m := &ledger.Metadata{
		FormatVersion: 3, Ensemble: len(r.bookies), WriteQuorum: len(r.bookies), AckQuorum: 1, State: ledger.StateOpen, LastEntry: ledger.InvalidEntry,
		Digest: ledger.DigestCRC32C, HasPassword: true, Fragments: []ledger.Fragment{{Bookies: r.bookies}}, CTime: 1, HasCTime: true,
	}
	id := 1 + rand.Int64N(1<<40)
	_, err = r.ledgers.Create(t.Context(), ledger.ID(id), m)
	require.NoError(t, err)
	d, err := digest.New(ledger.DigestCRC32C, nil)
	require.NoError(t, err)
	key := digest.MasterKey(nil)
	add := func(c *conn, entry int64) answer {
		return c.do(&wire.Request{
			Op: wire.OpAdd, Ledger: id, Entry: entry, Key: key[:], HasKey: true, Body: d.Seal(nil, id, entry, entry-1, entry, []byte("entry")),
		})
	}
	read := func(c *conn, entry int64) answer {
		return c.do(&wire.Request{Op: wire.OpRead, Ledger: id, Entry: entry})
	}
	c, err := dial(p.Bookies[0])
	require.NoError(t, err)
	for e := range int64(entries) {
		require.Equal(t, wire.OK, add(c, e).code)
	}
	require.Equal(t, http.StatusOK, p.post(t.Context(), 0, "/api/v2/flush"))
	c.close()
	require.NoError(t, r.store.Close())
	p.kill()

	// A ledger directory with entry logs and without its mark has lost something.
	require.NoError(t, os.Remove(filepath.Join(dir, "bookie-1", "ledgers", "current", "mark")))
	for _, point := range []string{"bookie.limbo-marked", "bookie.loss-accepted", "bookie.limbo-marked"} {
		p, alive := life(t, bin, dir, point+"=1")
		require.False(t, alive, point)
		requireDiedAtPoint(t, p)
	}
	for range 2 { // it stays so
		p, alive = life(t, bin, dir, "")
		require.True(t, alive)
		c, err := dial(p.Bookies[0])
		require.NoError(t, err)
		for e := range int64(entries) {
			a := read(c, e)
			require.Equal(t, wire.OK, a.code, "entry %d is there", e)
			entry, err := d.Open(a.body, id, e)
			require.NoError(t, err)
			require.Equal(t, "entry", string(entry.Payload))
		}
		require.Equal(t, wire.IO, read(c, entries+5).code, "unknown, as V2 says it")
		require.NotEqual(t, wire.OK, add(c, entries).code)
		c.close()
		p.kill()
	}
}
