package bookie

// outQueue is encoded answers that wait for the socket: bytes in buffers from the pools. Few bytes lie in one buffer, which
// grows; a large answer that was encoded into buffers of its own is not copied.
type outQueue struct{ chunks []*[]byte }

func (q *outQueue) empty() bool {
	return len(q.chunks) == 0 || len(q.chunks) == 1 && len(*q.chunks[0]) == 0
}

// room returns the buffer that the next n bytes go to.
func (q *outQueue) room(n int) *[]byte {
	if len(q.chunks) == 0 {
		q.chunks = append(q.chunks, getBuf(n))
	}
	last := &q.chunks[len(q.chunks)-1]
	switch used := len(**last); {
	case cap(**last)-used >= n:
	case used+n <= bufLarge:
		*last = appendBuf(*last, n)
	case used == 0:
		putBuf(*last)
		*last = getBuf(n)
	default:
		q.chunks = append(q.chunks, getBuf(n))
		last = &q.chunks[len(q.chunks)-1]
	}
	return *last
}

// push takes over a buffer.
func (q *outQueue) push(b *[]byte) {
	if q.empty() {
		q.drop()
	}
	q.chunks = append(q.chunks, b)
}

// drop gives all buffers back.
func (q *outQueue) drop() {
	for i, b := range q.chunks {
		putBuf(b)
		q.chunks[i] = nil
	}
	q.chunks = q.chunks[:0]
}
