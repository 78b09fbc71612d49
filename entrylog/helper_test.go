package entrylog

import (
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/binderylog/bindery/internal/vfs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testDir = "/data/current"

// smallOptions make everything happen soon: small buffers and logs.
func smallOptions() Options {
	return Options{
		LogSize: 64 << 10, BufferSize: 8 << 10, PreallocateSize: 32 << 10, DirectReads: true, OpenFilesMax: 4,
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}
}

// makeBody returns a body with the ids in front and bytes that depend on ids and version behind.
func makeBody(ledger, entry int64, size int, version uint64) []byte {
	b := make([]byte, max(size, MinBody))
	binary.BigEndian.PutUint64(b, uint64(ledger))
	binary.BigEndian.PutUint64(b[8:], uint64(entry))
	binary.BigEndian.PutUint64(b[16:], uint64(entry-1))
	rng := rand.New(rand.NewPCG(uint64(ledger)<<32^uint64(entry), version))
	for i := MinBody; i < len(b); i++ {
		b[i] = byte(rng.Uint32())
	}
	return b
}

type entryID struct{ ledger, entry int64 }

// model is what a test believes a store to hold.
type model struct {
	entries map[entryID][]byte
	at      map[entryID]Location
	states  map[int64]string
}

func newModel() *model {
	return &model{entries: map[entryID][]byte{}, at: map[entryID]Location{}, states: map[int64]string{}}
}

// batch is what one checkpoint holds.
type batch struct {
	bodies []struct {
		id   entryID
		body []byte
	}
	states []LedgerState
}

func (b *batch) add(ledger, entry int64, size int, version uint64) {
	b.bodies = append(b.bodies, struct {
		id   entryID
		body []byte
	}{entryID{ledger, entry}, makeBody(ledger, entry, size, version)})
}

func (b *batch) state(ledger int64, data string) {
	b.states = append(b.states, LedgerState{Ledger: ledger, Data: []byte(data)})
}

// write appends a batch and checkpoints it; the model learns of it only if that worked.
func (m *model) write(s *Store, b *batch) error {
	var rb RunBuilder
	at := map[entryID]Location{}
	for _, e := range b.bodies {
		loc, err := s.Append(e.body)
		if err != nil {
			return err
		}
		rb.Add(e.id.ledger, e.id.entry, loc)
		at[e.id] = loc
	}
	if err := s.Checkpoint(rb.Runs(), b.states); err != nil {
		return err
	}
	for _, e := range b.bodies {
		m.entries[e.id], m.at[e.id] = e.body, at[e.id]
	}
	for _, st := range b.states {
		m.states[st.Ledger] = string(st.Data)
	}
	return nil
}

// contents is what the logs of a store say they hold, the newest copy of each entry and state.
type contents struct {
	at     map[entryID]Location
	states map[int64]string
	damage []Damage
}

func readAll(s *Store) (*contents, error) {
	c := &contents{at: map[entryID]Location{}, states: map[int64]string{}}
	infos := s.Logs()
	// by age of content
	for i := range infos {
		for j := i + 1; j < len(infos); j++ {
			if infos[j].Before(infos[i]) {
				infos[i], infos[j] = infos[j], infos[i]
			}
		}
	}
	for _, info := range infos {
		if info.Writing {
			continue
		}
		f, err := s.Footer(info.ID)
		if err != nil {
			return nil, err
		}
		c.damage = append(c.damage, f.Damage...)
		inLog := map[entryID]Location{}
		bytes := map[int64]int64{}
		for r, err := range f.Runs() {
			if err != nil {
				return nil, err
			}
			for i := range int(r.Count) {
				id := entryID{r.Ledger, r.First + int64(i)}
				loc := r.Location(i)
				bytes[r.Ledger] += RecordHeaderSize + int64(loc.Size)
				if old, ok := inLog[id]; !ok || old.Offset < loc.Offset {
					inLog[id] = loc
				}
			}
		}
		for id, loc := range inLog {
			c.at[id] = loc
		}
		for ledger, n := range bytes {
			if f.Ledgers[ledger] != n {
				return nil, fmt.Errorf("log %s: ledger map says %d bytes of ledger %d, runs say %d", info.ID, f.Ledgers[ledger], ledger, n)
			}
		}
		for _, st := range f.States {
			c.states[st.Ledger] = string(st.Data)
		}
	}
	return c, nil
}

// holds checks that everything of the model is there and right. More may be there: what was never acknowledged.
func (m *model) holds(t *testing.T, s *Store, c *contents, where string) {
	t.Helper()
	for id, body := range m.entries {
		loc, ok := c.at[id]
		require.True(t, ok, "%s: entry %v is missing", where, id)
		got, err := s.Read(loc, nil)
		require.NoError(t, err, "%s: entry %v", where, id)
		l, e := IDs(got)
		require.Equal(t, id, entryID{l, e}, where)
		require.Equal(t, body, got, "%s: entry %v", where, id)
	}
	for ledger, want := range m.states {
		require.Equal(t, want, c.states[ledger], "%s: state of ledger %d", where, ledger)
	}
}

func mustOpen(t *testing.T, fs vfs.FS, o Options) (*Store, *Recovered) {
	t.Helper()
	s, r, err := Open(fs, testDir, o)
	require.NoError(t, err)
	return s, r
}
