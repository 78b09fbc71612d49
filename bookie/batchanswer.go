package bookie

import (
	"github.com/binderylog/bindery/bookie/storage"
	"github.com/binderylog/bindery/internal/wire"
)

// batchAnswer is the answer to a batch read being built: a frame in buffers from the pools, into which storage reads.
type batchAnswer struct {
	frame   []*[]byte
	limit   int64
	size    int64 // bytes of the frame
	entries int64
	full    bool
}

func newBatchAnswer(head *wire.Response, limit int64) *batchAnswer {
	b := getBuf(int(min(max(limit, bufSmall), bufLarge)))
	*b = wire.AppendResponse(*b, head)
	return &batchAnswer{frame: []*[]byte{b}, limit: limit, size: int64(len(*b))}
}

// read adds an entry. One that would make the frame larger than allowed is left out, unless it is the first.
func (a *batchAnswer) read(l *storage.Ledger, entry int64) error {
	last := a.frame[len(a.frame)-1]
	at := len(*last) + wire.LengthSize
	if cap(*last) <= at { // not even a byte would fit
		last, at = getBuf(bufLarge), wire.LengthSize
		a.frame = append(a.frame, last)
	}
	body, err := l.Read(entry, (*last)[at:at])
	if err != nil {
		return err
	}
	if a.entries > 0 && a.size+int64(len(body)+wire.LengthSize) > a.limit {
		a.full = true
		return nil
	}
	if len(body) > cap(*last)-at { // storage took other memory
		last = getBuf(max(bufLarge, len(body)+wire.LengthSize))
		a.frame = append(a.frame, last)
		*last = wire.AppendBatchEntry(*last, body)
	} else {
		*last = wire.AppendBatchEntry(*last, body) // body lies where it is copied to
	}
	a.entries++
	a.size += int64(len(body) + wire.LengthSize)
	a.full = a.size >= a.limit
	return nil
}

// close returns the finished frame.
func (a *batchAnswer) close() []*[]byte {
	wire.PutFrameSize(*a.frame[0], int(a.size))
	return a.frame
}

func (a *batchAnswer) drop() {
	for _, b := range a.frame {
		putBuf(b)
	}
}
