// Package engines races journals on the same disk: ours, tidwall/wal, and plain appends with fdatasync. Each makes batches
// of records durable, one batch after the other, in interleaved rounds.
//
// tidwall/wal opens files by name, so the package makes a directory for it, and removes it. A kill in between leaves that
// directory (its name begins as those of all test files); the other engines leave nothing.
//
// The package starts no goroutine but those of the journal, which it joins.
package engines

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/tidwall/wal"

	"github.com/binderylog/bindery/journal"
	"github.com/binderylog/bindery/tools/iobench/chapter"
	"github.com/binderylog/bindery/tools/iobench/engine"
	"github.com/binderylog/bindery/tools/iobench/result"
)

// Batch is a shape of load: so many records of so many bytes made durable at once.
type Batch struct{ Records, Bytes int }

// Batches are what is raced.
var Batches = []Batch{{1, 1024}, {64, 1024}, {1000, 100}, {16, 64 * 1024}}

// Run races the engines.
func Run(ctx context.Context, p *chapter.Place, o chapter.Options) (_ *chapter.Result, err error) {
	book := chapter.Open(result.ChapterEngines, p, o)
	var closers []func() error
	closeAll := func(err error) error {
		for _, c := range closers {
			err = errors.Join(err, c())
		}
		return err
	}
	var list []engine.Contender
	for _, b := range Batches {
		for _, e := range []struct {
			name string
			open func() (engine.Worker, func() error, error)
		}{
			{"bindery", func() (engine.Worker, func() error, error) { return openOurs(p, o, b) }},
			{"tidwall-wal", func() (engine.Worker, func() error, error) { return openTidwall(p, b) }},
			{"append-fdatasync", func() (engine.Worker, func() error, error) { return openPlain(ctx, p, o, b) }},
		} {
			c := result.Cell{
				ID: fmt.Sprintf("%s/%dx%d", e.name, b.Records, b.Bytes), Op: "add", Engine: e.name, Pattern: "sequential",
				BlockBytes: b.Records * b.Bytes, Depth: 1, Durable: true, Method: string(journal.IOFdatasync), Buffered: true,
			}
			if e.name == "bindery" {
				c.Method, c.Buffered = string(o.Method), o.Method == journal.IOBuffered
			}
			w, closer, err := e.open()
			switch {
			case err == nil:
				closers = append(closers, closer)
				list = append(list, engine.Contender{Load: engine.Load{Probe: book.Probe(c), Workers: []engine.Worker{w}, OpsMin: 8}})
			case engine.IsUnsupported(err):
				book.Unsupported(c, err)
			default:
				return book.Close(closeAll(err))
			}
		}
	}
	for i := range list {
		list[i].Duration = engine.Slice(o.Budget, o.Rounds, len(list))
		list[i].BytesMax = book.BytesEach(len(list))
	}
	err = p.Env.Interleave(ctx, o.Rounds, list, result.ChapterEngines)
	r, err := book.Close(closeAll(err))
	for _, b := range Batches {
		shape := fmt.Sprintf("%dx%d", b.Records, b.Bytes)
		book.Compare("engine at "+shape+" bytes", engine.ByP50, "bindery/"+shape, "tidwall-wal/"+shape, "append-fdatasync/"+shape)
	}
	r.Chapter = book.Chapter()
	return r, err
}

// ours is our journal.
type ours struct {
	j       *chapter.RealJournal
	b       Batch
	mu      sync.Mutex
	back    sync.Cond
	waiting int // records whose fate is not known
	err     error
	got     int // by the group under way
}

func openOurs(p *chapter.Place, o chapter.Options, b Batch) (engine.Worker, func() error, error) {
	j, err := chapter.OpenJournal(p, o.Method, 512*engine.KiB)
	if err != nil {
		return nil, nil, err
	}
	w := &ours{j: j, b: b}
	w.back.L = &w.mu
	return w, j.Close, nil
}

func (w *ours) Prepare(context.Context) error { return nil }

func (w *ours) Do() (engine.Parts, error) {
	w.mu.Lock()
	w.waiting = w.b.Records
	w.mu.Unlock()
	for range w.b.Records {
		if err := w.j.Add(w.b.Bytes, w, journal.Token{}); err != nil {
			return engine.Parts{}, err
		}
	}
	w.j.Commit()
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.waiting > 0 && w.err == nil {
		w.back.Wait()
	}
	return engine.Parts{Written: int64(w.b.Records * w.b.Bytes)}, w.err
}

// JournalDone implements journal.Sink.
func (w *ours) JournalDone(_ journal.Token, err error) {
	w.got++
	if err != nil {
		w.mu.Lock()
		w.err = errors.Join(w.err, err)
		w.mu.Unlock()
	}
}

// JournalFlush implements journal.Sink.
func (w *ours) JournalFlush() {
	w.mu.Lock()
	w.waiting -= w.got
	w.got = 0
	w.mu.Unlock()
	w.back.Signal()
}

// tidwall is tidwall/wal, which syncs each batch.
type tidwall struct {
	p     *chapter.Place
	log   *wal.Log
	b     Batch
	pay   *engine.Payload
	index uint64
	batch wal.Batch
	full  bool // batch holds what is to be written next
	since int64
}

func openTidwall(p *chapter.Place, b Batch) (engine.Worker, func() error, error) {
	dir, err := os.MkdirTemp(p.Env.Dir, engine.TempPrefix+"wal-")
	if err != nil {
		return nil, nil, err
	}
	log, err := wal.Open(filepath.Join(dir, "log"), &wal.Options{LogFormat: wal.Binary, SegmentSize: 64 * engine.MiB})
	if err != nil {
		return nil, nil, errors.Join(err, os.RemoveAll(dir))
	}
	w := &tidwall{p: p, log: log, b: b, pay: engine.NewPayload(p.Env.Seed+21, b.Bytes)}
	return w, func() error { return errors.Join(log.Close(), os.RemoveAll(dir)) }, nil
}

func (w *tidwall) Prepare(context.Context) error {
	if w.full { // the last round ended before it was written, and indexes must follow each other
		return nil
	}
	n := int64(w.b.Records * w.b.Bytes)
	if err := w.p.Env.Meter.Take(n); err != nil {
		return err
	}
	if w.since += n; w.since > 256*engine.MiB && w.index > 1 {
		w.since = 0
		if err := w.log.TruncateFront(w.index); err != nil { // its disk space is not what is raced
			return err
		}
	}
	w.batch.Clear()
	for range w.b.Records {
		w.index++
		w.batch.Write(w.index, w.pay.Next(w.b.Bytes)) // copies
	}
	w.full = true
	return nil
}

func (w *tidwall) Do() (engine.Parts, error) {
	w.full = false
	return engine.Parts{Written: int64(w.b.Records * w.b.Bytes)}, w.log.WriteBatch(&w.batch)
}

// openPlain appends each batch with one buffered write and fdatasync.
func openPlain(ctx context.Context, p *chapter.Place, o chapter.Options, b Batch) (engine.Worker, func() error, error) {
	a, err := p.Env.NewArea(ctx, engine.AreaOptions{Size: max(64*engine.MiB, o.FileBytes), State: engine.Append, Methods: []journal.IOMethod{journal.IOBuffered}, FillFor: time.Second})
	if err != nil {
		return nil, nil, err
	}
	w, err := a.DurableWriter(journal.IOBuffered, b.Records*b.Bytes)
	if err != nil {
		return nil, nil, errors.Join(err, a.Close())
	}
	return w, a.Close, nil
}
