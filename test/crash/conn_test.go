//go:build crash

package crash

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/binderylog/bindery/internal/wire"
)

// errNoAnswer says that the connection ended, or the bookie kept silent, before an answer came.
var errNoAnswer = errors.New("no answer")

// answerTimeout is how long a living bookie may keep a request.
const answerTimeout = time.Minute

// answer is what a bookie said; err is errNoAnswer or nil.
type answer struct {
	code wire.Code
	body []byte // of a read, or of a read LAC
	err  error
}

// callKey says which call an answer belongs to: V2 names operation and entry, V3 a transaction.
type callKey struct {
	op            wire.Op
	ledger, entry int64
	txn           uint64
}

// conn is one connection to a bookie, used by one goroutine, with answers in any order.
type conn struct {
	nc   net.Conn
	form wire.Proto
	txn  uint64
	w    *bufio.Writer
	buf  []byte
	mu   sync.Mutex
	open map[callKey][]func(answer) // guarded by mu
	n    int                        // guarded by mu: calls in open
	err  error                      // guarded by mu: why the connection ended
	idle *sync.Cond                 // signalled when a call is answered
	wg   sync.WaitGroup
}

func dial(address string) (*conn, error) { return dialForm(address, wire.V2) }

func dialForm(address string, form wire.Proto) (*conn, error) {
	nc, err := net.DialTimeout("tcp", address, answerTimeout)
	if err != nil {
		return nil, err
	}
	c := &conn{nc: nc, form: form, w: bufio.NewWriterSize(nc, 256<<10), open: map[callKey][]func(answer){}}
	c.idle = sync.NewCond(&c.mu)
	c.wg.Go(c.receive)
	return c, nil
}

// close ends the connection; calls that have no answer yet get errNoAnswer.
func (c *conn) close() {
	_ = c.nc.Close()
	c.wg.Wait()
}

func (c *conn) failed() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

func (c *conn) key(op wire.Op, ledgerID, entry int64, txn uint64) callKey {
	if c.form == wire.V3 {
		return callKey{txn: txn}
	}
	return callKey{op: op, ledger: ledgerID, entry: entry}
}

// isOpen says whether such a call has no answer yet.
func (c *conn) isOpen(op wire.Op, ledgerID, entry int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.open[c.key(op, ledgerID, entry, 0)]) > 0
}

// send writes a request into the buffer; done runs once, on the receiver's goroutine or, if the connection has ended,
// here. flush must follow.
func (c *conn) send(r *wire.Request, done func(answer)) {
	r.Proto, r.Version = c.form, byte(c.form)
	if c.form == wire.V3 {
		c.txn++
		r.TxnID = c.txn
	}
	k := c.key(r.Op, r.Ledger, r.Entry, r.TxnID)
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		done(answer{err: errNoAnswer})
		return
	}
	c.open[k] = append(c.open[k], done)
	c.n++
	c.mu.Unlock()
	var err error
	c.buf, err = wire.AppendRequest(c.buf[:0], r)
	if err == nil {
		_, err = c.w.Write(c.buf)
	}
	if err != nil {
		_ = c.nc.Close() // the receiver answers all open calls
	}
}

func (c *conn) flush() {
	if c.w.Flush() != nil {
		_ = c.nc.Close()
	}
}

// wait returns once at most n calls are open, or the connection has ended. It flushes if it has to wait.
func (c *conn) wait(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil || c.n <= n {
		return
	}
	c.mu.Unlock()
	c.flush()
	c.mu.Lock()
	for c.err == nil && c.n > n {
		c.idle.Wait()
	}
}

// do sends one request and waits for its answer.
func (c *conn) do(r *wire.Request) answer {
	got := make(chan answer, 1)
	c.send(r, func(a answer) { got <- a })
	c.flush()
	return <-got
}

func (c *conn) receive() {
	r := bufio.NewReaderSize(c.nc, 256<<10)
	var err error
	for err == nil {
		err = c.next(r)
	}
	c.mu.Lock()
	c.err = err
	open := c.open
	c.open = map[callKey][]func(answer){}
	c.idle.Broadcast()
	c.mu.Unlock()
	_ = c.nc.Close()
	for _, calls := range open {
		for _, done := range calls {
			done(answer{err: errNoAnswer})
		}
	}
}

func (c *conn) next(r *bufio.Reader) error {
	for {
		if err := c.nc.SetReadDeadline(time.Now().Add(answerTimeout)); err != nil {
			return err
		}
		_, err := r.Peek(1)
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() {
			c.mu.Lock()
			idle := c.n == 0
			c.mu.Unlock()
			if idle {
				continue
			}
			return fmt.Errorf("hung: %w for %v", errNoAnswer, answerTimeout)
		}
		if err != nil {
			return err
		}
		break
	}
	var length [4]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(length[:])
	if n > wire.DefaultFrameLimit {
		return fmt.Errorf("a frame of %d bytes", n)
	}
	packet := make([]byte, n)
	if _, err := io.ReadFull(r, packet); err != nil {
		return err
	}
	var resp wire.Response
	if err := wire.DecodeResponse(c.form, packet, &resp); err != nil {
		return err
	}
	k := c.key(resp.Op, resp.Ledger, resp.Entry, resp.TxnID)
	c.mu.Lock()
	calls := c.open[k]
	if len(calls) == 0 {
		c.mu.Unlock()
		return fmt.Errorf("an answer to nothing: %s of ledger %d entry %d", resp.Op, resp.Ledger, resp.Entry)
	}
	if len(calls) == 1 {
		delete(c.open, k)
	} else {
		c.open[k] = calls[1:]
	}
	c.mu.Unlock()
	body := resp.Body
	if resp.Op == wire.OpReadLAC {
		body = resp.LACBody
	}
	calls[0](answer{code: resp.Code, body: body})
	c.mu.Lock() // only now: who waits for all calls wants their effects
	c.n--
	c.idle.Broadcast()
	c.mu.Unlock()
	return nil
}
