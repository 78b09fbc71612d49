package storage

import (
	"errors"

	"github.com/binderylog/bindery/entrylog"
	"github.com/binderylog/bindery/internal/vfs"
)

// pieceMax is the most that is read of a log at once for the read cache: a window of aheadMax up to the end of a bucket, two
// of the largest entries, and what alignment adds.
const pieceMax = aheadMax + bucketSize + entrylog.RecordHeaderSize + 2*blockEntryMax + aheadSlack + 64<<10

// pieceBuffers are the buffers of large reads: a few off the heap, made when they are first needed. On the heap they would
// make the collector run all the time. Whoever finds none waits for one: more reads at once would not make a disk faster.
type pieceBuffers struct{ free chan []byte }

func (p *pieceBuffers) init(n int) {
	p.free = make(chan []byte, n)
	for range n {
		p.free <- nil
	}
}

func (p *pieceBuffers) take() []byte {
	b := <-p.free
	if b == nil {
		var err error
		if b, err = vfs.AllocOffHeap(pieceMax); err != nil {
			return nil // the reader makes one on the heap
		}
	}
	return b
}

func (p *pieceBuffers) give(b []byte) { p.free <- b }

// close frees the buffers. Nobody reads any more.
func (p *pieceBuffers) close() (err error) {
	for range cap(p.free) {
		if b := <-p.free; b != nil {
			err = errors.Join(err, vfs.FreeOffHeap(b))
		}
	}
	return err
}
