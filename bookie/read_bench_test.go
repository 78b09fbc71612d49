package bookie

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/binderylog/bindery/internal/wire"
)

// readLoad is the reads of one connection.
type readLoad struct {
	c       net.Conn
	frame   []byte
	entries int64
	next    int64
}

func newReadLoad(t testing.TB, b *testBookie, ledger, entries int64) *readLoad {
	c, err := net.Dial("tcp", b.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return &readLoad{c: c, entries: entries, frame: encode(t, wire.Request{Proto: wire.V2, Op: wire.OpRead, Ledger: ledger})}
}

// run reads n entries, one after the other around the ledger, with window outstanding.
func (l *readLoad) run(n, window int) error {
	r := bufio.NewReaderSize(l.c, 256<<10)
	batch := make([]byte, 0, window*len(l.frame))
	sent, done := 0, 0
	for done < n {
		batch = batch[:0]
		for sent < n && sent-done < window {
			binary.BigEndian.PutUint64(l.frame[4+4+8:], uint64(l.next%l.entries))
			batch = append(batch, l.frame...)
			l.next++
			sent++
		}
		if len(batch) > 0 {
			if _, err := l.c.Write(batch); err != nil {
				return err
			}
		}
		for first := true; first || r.Buffered() >= 64; first = false {
			head, err := r.Peek(12)
			if err != nil {
				return err
			}
			if rc := binary.BigEndian.Uint32(head[8:]); rc != 0 {
				return fmt.Errorf("read: rc %d", rc)
			}
			if _, err := io.CopyN(io.Discard, r, 4+int64(binary.BigEndian.Uint32(head))); err != nil {
				return err
			}
			if done++; done == sent {
				break
			}
		}
	}
	return nil
}

// BenchmarkBookieRead measures reads of entries in a cache, over loopback. conns connections have window reads outstanding.
func BenchmarkBookieRead(b *testing.B) {
	const entries = 2000
	for _, shape := range []struct {
		cache         string
		conns, window int
	}{{"write", 1, 1}, {"write", 4, 1}, {"write", 4, 64}, {"read", 1, 1}, {"read", 4, 64}} {
		b.Run(fmt.Sprintf("cache=%s/conns=%d/window=%d/entry=1024", shape.cache, shape.conns, shape.window), func(b *testing.B) {
			bk := diskBookie(b, nil)
			loads := make([]*readLoad, shape.conns)
			for i := range loads {
				if err := newLoad(b, bk, int64(i+1), 1024).run(entries, 100); err != nil {
					b.Fatal(err)
				}
				loads[i] = newReadLoad(b, bk, int64(i+1), entries)
			}
			if shape.cache == "read" {
				if err := bk.eng.st.Checkpoint(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
			for _, l := range loads {
				if err := l.run(2*entries, 8); err != nil {
					b.Fatal(err)
				}
			}
			b.SetBytes(1024)
			runLoads(b, loads, shape.window, "reads")
		})
	}
}
