package offload

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/pace"
)

// comparison reads a ledger's entries from the bookies beside its blocks from the tier. It ends at the first error of theirs.
type comparison struct {
	pull func() (Entry, error, bool)
	stop func()
	read *pace.Bucket
	err  error
}

// compareWith begins to read all entries.
func (w *Worker) compareWith(ctx context.Context, id ledger.ID, m *ledger.Metadata) *comparison {
	x := &comparison{read: w.read}
	x.pull, x.stop = iter.Pull2(w.o.Entries(ctx, id, m, 0, m.LastEntry))
	return x
}

// next returns the bookies' next entry, false once there is none to compare with any more.
func (x *comparison) next(ctx context.Context) (Entry, bool) {
	if x.err != nil {
		return Entry{}, false
	}
	e, err, ok := x.pull()
	switch {
	case err == nil && !ok:
		err = errors.New("they have fewer entries")
	case err == nil:
		err = x.read.Wait(ctx, len(e.Payload)+len(e.Digest))
	}
	x.err = err
	return e, err == nil
}

// block compares one block; the error names the first entry that differs.
func (x *comparison) block(ctx context.Context, b *Block) error {
	if x == nil {
		return nil
	}
	var differs error
	for i := range b.Entries {
		e, ok := x.next(ctx)
		if !ok {
			return differs
		}
		if t := &b.Entries[i]; differs == nil && (e.ID != t.ID || !bytes.Equal(e.Payload, t.Payload)) {
			differs = fmt.Errorf("entry %d is not what the bookies hold, although all checksums are right", t.ID)
		}
	}
	return differs
}

// skip passes over the entries of a block that could not be read.
func (x *comparison) skip(ctx context.Context, n int64) {
	if x == nil {
		return
	}
	for ; n > 0; n-- {
		if _, ok := x.next(ctx); !ok {
			return
		}
	}
}
