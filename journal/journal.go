package journal

import (
	"io"
	"time"

	"github.com/binderylog/bindery/internal/vfs"
)

// Journal is one journal directory.
type Journal struct {
	dir string
}

// Open reads the directory dir/current, which may be missing or empty. It writes nothing.
func Open(fs vfs.FS, dir string, o Options) (*Journal, error) {
	o.EnsureDefaults()
	if err := o.Validate(); err != nil {
		return nil, err
	}
	return &Journal{dir: dir}, nil
}

// Replay calls fn with every record at or after from, in order. It must come before Start; it may be repeated.
func (j *Journal) Replay(from Position, fn func(Record) error) (Replayed, error) {
	return Replayed{Whole: true}, nil
}

// Start makes what Replay found durable, cuts a torn tail for ever and opens a fresh segment.
func (j *Journal) Start() error { return nil }

// Reserve takes room for n body bytes, waiting at most timeout for it (ErrBusy). Append consumes len(body) of it.
func (j *Journal) Reserve(n int, timeout time.Duration) error { return ErrNotStarted }

// Release gives back what Reserve took and no Append will consume.
func (j *Journal) Release(n int) {}

// Append adds a record to the open group. kind 0 carries no record: its sink hears when everything before is synced.
func (j *Journal) Append(kind uint8, tag uint64, body []byte, sink Sink, t Token) (Position, error) {
	return 0, ErrNotStarted
}

// Commit sees to it that what was appended gets written. Callers call it once per batch of Appends.
func (j *Journal) Commit() {}

// Mark returns the position of the open group: records appended from now on have this position or a later one.
func (j *Journal) Mark() Position { return 0 }

// Trim recycles the segments that hold only groups before p.
func (j *Journal) Trim(p Position) error { return nil }

// Err returns nil, or why the journal takes nothing more.
func (j *Journal) Err() error { return nil }

// Close writes what was appended, makes it durable, and joins the journal's goroutines.
func (j *Journal) Close() error { return nil }

// WritePrometheus writes the journal's metrics.
func (j *Journal) WritePrometheus(w io.Writer) {}
