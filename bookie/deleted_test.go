package bookie

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/internal/vfs/memfs"
	"github.com/binderylog/bindery/internal/wire"
)

// TestDeletedFilesAreMissed: files of a stopped or killed bookie are deleted. The next start knows that something is lost:
// no acknowledged entry is denied, every ledger that names the bookie is in limbo and fenced, and so it is after a
// further restart.
func TestDeletedFilesAreMissed(t *testing.T) {
	under := func(dir string, match func(name string) bool) func(fs *memfs.FS) {
		return func(fs *memfs.FS) {
			names, err := fs.List(dir)
			require.NoError(t, err)
			n := 0
			for _, name := range names {
				if match(name) {
					require.NoError(t, fs.Remove(dir+"/"+name))
					n++
				}
			}
			require.Positive(t, n)
		}
	}
	segments := under("/journal/current", func(n string) bool { return strings.HasSuffix(n, ".jnl") })
	logsAndIndex := under("/ledgers/current", func(n string) bool {
		return strings.HasPrefix(n, "index.db") || strings.HasSuffix(n, ".log") && !strings.HasPrefix(n, "index")
	})
	for name, c := range map[string]struct {
		flush, clean bool
		remove       func(fs *memfs.FS)
	}{
		"journal segments, nothing flushed yet":                {false, false, segments},
		"journal segments behind a flush":                      {true, false, segments},
		"the index and the entry logs, after a clean stop":     {true, true, logsAndIndex},
		"the index and the entry logs, after the bookie's end": {true, false, logsAndIndex},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			ctx := context.Background()
			b := s.start()
			_, err := s.views.Ledgers.Create(ctx, 1, &ledger.Metadata{
				FormatVersion: 3, Ensemble: 1, WriteQuorum: 1, AckQuorum: 1, State: ledger.StateOpen, LastEntry: -1,
				Fragments: []ledger.Fragment{{First: 0, Bookies: []ledger.BookieID{"b1"}}}, Digest: ledger.DigestCRC32C, HasPassword: true,
			})
			require.NoError(t, err)
			client := s.dial(b)
			client.add(1, 0, "x")
			if c.flush {
				require.NoError(t, b.Flush(ctx))
			}
			if !c.clean {
				client.add(1, 1, "y")
			}
			if c.clean {
				s.stop(b)
			} else {
				fs := s.fs.(*memfs.FS)
				left := fs.CrashClone(1, 0)
				fs.CrashNow()
				stop, cancel := context.WithTimeout(ctx, time.Second)
				_ = b.Stop(stop)
				cancel()
				s.fs = left
			}
			c.remove(s.fs.(*memfs.FS))
			for range 2 {
				b = s.start()
				client := s.dial(b)
				for _, e := range []int64{0, 1} {
					require.Contains(t, []wire.Code{wire.OK, wire.UnknownState}, client.read(wire.V3, 1, e).Code, "entry %d\n%s", e, s.logs)
				}
				for _, e := range []int64{2, -1} {
					require.Equal(t, wire.UnknownState, client.read(wire.V3, 1, e).Code, "entry %d\n%s", e, s.logs)
				}
				require.Equal(t, wire.IO, client.do(addReq(wire.V2, 1, 2, 1, "late")).Code)
				require.NotZero(t, b.lossEpoch)
				s.stop(b)
			}
			r, _, err := metadata.NewViews(s.store, "/ledgers").Incarnations.Get(ctx, "b1")
			require.NoError(t, err)
			require.True(t, r.EverLost)
			require.Empty(t, r.Loss, "it has been dealt with")
			require.Equal(t, 1, strings.Count(s.logs.String(), "every ledger that names this bookie goes into limbo"))
		})
	}
}
