package journal

import (
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/vfs/errorfs"
	"github.com/binderylog/bindery/internal/vfs/memfs"
)

// orderWatch looks at the operations of a journal and says which came before what they depend on was durable.
type orderWatch struct {
	mu       sync.Mutex
	names    map[string]string // a file's name that is not durable -> the operation that gave it
	dirty    map[string]bool   // files with writes that no sync has followed; methods that sync only
	broken   []string
	recycled int
	stamped  int
}

func (w *orderWatch) String() string { return "the order of steps" }

func (w *orderWatch) Inject(op errorfs.Op) errorfs.Fault {
	w.mu.Lock()
	defer w.mu.Unlock()
	live := func(name string) bool { return strings.HasSuffix(name, liveSuffix) }
	switch op.Kind {
	case errorfs.Rename:
		switch {
		case live(op.Path) && !live(op.NewPath):
			w.recycled++
			w.names[op.NewPath] = op.String()
		case live(op.NewPath):
			w.stamped++
			if w.dirty[op.Path] {
				w.broken = append(w.broken, op.String()+" before the header's sync")
			}
			w.names[op.Path] = op.String() // the file goes on being written by the name it was opened with
		}
	case errorfs.SyncDir:
		clear(w.names)
	case errorfs.Sync:
		delete(w.dirty, op.Path)
	case errorfs.Write:
		if cause := w.names[op.Path]; cause != "" {
			w.broken = append(w.broken, op.String()+" before the directory's sync that follows "+cause)
		}
		if op.Off == 0 {
			w.dirty[op.Path] = true
		}
	}
	return errorfs.Fault{}
}

// TestStepsComeInOrder: a segment's header is durable before its name, its name before its groups, and the name of a
// recycled file before it is written again. Otherwise a power loss may leave a segment with another one's header.
func TestStepsComeInOrder(t *testing.T) {
	for _, io := range []IOMethod{IODSync, IOFdatasync, IOBuffered} {
		w := &orderWatch{names: map[string]string{}, dirty: map[string]bool{}}
		fs := errorfs.Wrap(memfs.New(), w)
		o := crashOptions(io)
		h := newHistory()
		for range 3 {
			j := mustStart(t, fs, "/j", o)
			for b := range 40 {
				require.NoError(t, h.appendBatch(j, 2, 5000))
				if b%3 == 0 {
					require.NoError(t, h.trim(j, 3))
				}
			}
			require.NoError(t, j.Close())
		}
		require.Empty(t, w.broken)
		require.Greater(t, w.stamped, 6)
		require.Greater(t, w.recycled, 3)
	}
}
