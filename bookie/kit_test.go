package bookie

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/binderylog/bindery/bookie/index"
	"github.com/binderylog/bindery/internal/digest"
	"github.com/binderylog/bindery/internal/intent"
	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/vfs"
	"github.com/binderylog/bindery/internal/vfs/memfs"
	"github.com/binderylog/bindery/internal/wire"
	"github.com/binderylog/bindery/journal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testBookie is engine and server on a real TCP port, without metadata: what the wire protocol needs.
type testBookie struct {
	t     testing.TB
	fs    vfs.FS
	o     Options
	state *state
	eng   *engine
	srv   *server
	addr  string
	logs  *logBuffer
	ended bool
}

// logBuffer keeps what was logged, for tests that assert on it.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// bookieConfig is what a test may want otherwise.
type bookieConfig struct {
	fs        vfs.FS
	mod       func(*Options)
	check     checkOpen
	lossEpoch uint64
}

// newMemFS returns a file system in memory with the directories of a test bookie.
func newMemFS() *memfs.FS { return memfs.New("/journal/current", "/ledgers/current") }

func testOptions(fs vfs.FS, dir string) Options {
	o := Options{
		Listen: "127.0.0.1:0", JournalDirs: []string{filepath.Join(dir, "journal")}, LedgerDirs: []string{filepath.Join(dir, "ledgers")}, FS: fs,
		InFlightBytes: 16 << 20, ReadWorkers: 4,
	}
	o.Journal.SegmentSize = 16 << 20
	o.Journal.IO = journal.IODSync
	o.Storage.WriteCacheBytes = 16 << 20
	o.Storage.ReadCacheBytes = 8 << 20
	o.Storage.Log.LogSize = 16 << 20
	o.Storage.ReserveBytes = 1 << 20
	return o
}

// onVFS makes the parts that otherwise open files of the operating system use fs.
func onVFS(o *Options, fs vfs.FS) {
	o.Storage.OpenIndex = func(path string, io index.Options) (index.Index, error) { return index.OpenMem(fs, path, io) }
	o.Storage.OpenIntents = func(dir string, io intent.Options) (intent.Log, error) { return intent.OpenVFS(fs, dir, io) }
}

// startBookie starts a bookie on cfg.fs (default: a new one in memory).
func startBookie(t testing.TB, cfg bookieConfig) *testBookie {
	t.Helper()
	if cfg.fs == nil {
		cfg.fs = newMemFS()
	}
	b := &testBookie{t: t, fs: cfg.fs, logs: &logBuffer{}}
	b.o = testOptions(cfg.fs, "/")
	b.o.Logger = slog.New(slog.NewTextHandler(b.logs, nil))
	if cfg.mod != nil {
		cfg.mod(&b.o)
	}
	if cfg.fs != vfs.OS() {
		onVFS(&b.o, cfg.fs)
	}
	b.o.EnsureDefaults()
	b.state = newState(nil)
	ids := make([]string, len(b.o.JournalDirs))
	for i := range ids {
		ids[i] = "journal-" + string(rune('a'+i))
	}
	var err error
	b.eng, err = openEngine(&b.o, ids, b.state)
	require.NoError(t, err)
	_, err = b.eng.replay(context.Background())
	require.NoError(t, err)
	require.NoError(t, b.eng.start(context.Background()))
	check := cfg.check
	if check == nil {
		check = func(context.Context, int64) (bool, bool, error) {
			return false, false, errors.New("this test has no metadata")
		}
	}
	b.srv = newServer(&b.o, b.eng.st, b.eng.journals, b.state, &metrics{}, check, cfg.lossEpoch)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	b.addr = ln.Addr().String()
	b.srv.listen(ln)
	t.Cleanup(b.stop)
	return b
}

// stop ends the bookie gracefully.
func (b *testBookie) stop() {
	if b.ended {
		return
	}
	b.ended = true
	cut := make(chan struct{})
	timer := time.AfterFunc(patience, func() { close(cut) })
	b.srv.stop(cut)
	timer.Stop()
	if err := b.eng.stop(); err != nil && b.state.writable() {
		b.t.Errorf("stop: %v\n%s", err, b.logs)
	}
}

// crash takes the file system as a power loss would leave it at this moment, and stops the bookie, which can change
// nothing about that any more.
func (b *testBookie) crash() *memfs.FS {
	b.t.Helper()
	clone := b.fs.(*memfs.FS).CrashClone(1, 0)
	b.kill()
	return clone
}

// kill ends the bookie without letting it write anything.
func (b *testBookie) kill() {
	b.ended = true
	if m, ok := b.fs.(*memfs.FS); ok {
		m.CrashNow()
	}
	cut := make(chan struct{})
	close(cut)
	b.srv.stop(cut)
	_ = b.eng.stop()
}

// restart stops the bookie and starts one on the same directories.
func (b *testBookie) restart(cfg bookieConfig) *testBookie {
	b.t.Helper()
	b.stop()
	cfg.fs = b.fs
	return startBookie(b.t, cfg)
}

// client speaks the protocol without interpreting it.
type client struct {
	t   testing.TB
	c   net.Conn
	r   *bufio.Reader
	txn uint64
}

func (b *testBookie) dial() *client {
	b.t.Helper()
	c, err := net.Dial("tcp", b.addr)
	require.NoError(b.t, err)
	b.t.Cleanup(func() { _ = c.Close() })
	return &client{t: b.t, c: c, r: bufio.NewReaderSize(c, 1<<20)}
}

func (c *client) write(p []byte) {
	c.t.Helper()
	_, err := c.c.Write(p)
	require.NoError(c.t, err)
}

// patience is how long a test waits for what has to come; it is long, because machines may be slow.
const patience = time.Minute

// frame reads one frame with its length.
func (c *client) frame() []byte {
	c.t.Helper()
	f, err := c.tryFrame(patience)
	require.NoError(c.t, err)
	return f
}

// tryFrame is frame with a time-out for the frame's beginning; after it nothing has been taken.
func (c *client) tryFrame(timeout time.Duration) ([]byte, error) {
	_ = c.c.SetReadDeadline(time.Now().Add(timeout))
	head, err := c.r.Peek(4)
	if err != nil {
		return nil, err
	}
	_ = c.c.SetReadDeadline(time.Now().Add(patience))
	f := make([]byte, 4+binary.BigEndian.Uint32(head))
	_, err = io.ReadFull(c.r, f)
	return f, err
}

func (c *client) recv(p wire.Proto) wire.Response {
	c.t.Helper()
	var r wire.Response
	require.NoError(c.t, wire.DecodeResponse(p, c.frame()[4:], &r))
	return r
}

func encode(t testing.TB, r wire.Request) []byte {
	t.Helper()
	if r.Proto == 0 {
		r.Proto = wire.V2
	}
	if r.Proto == wire.V2 && r.Version == 0 {
		r.Version = 2
	}
	f, err := wire.AppendRequest(nil, &r)
	require.NoError(t, err)
	return f
}

// do sends one request and returns its answer.
func (c *client) do(r wire.Request) wire.Response {
	c.t.Helper()
	if r.Proto == 0 {
		r.Proto = wire.V2
	}
	if r.Proto == wire.V3 && r.TxnID == 0 {
		c.txn++
		r.TxnID = c.txn
	}
	c.write(encode(c.t, r))
	resp := c.recv(r.Proto)
	if r.Proto == wire.V3 {
		require.Equal(c.t, r.TxnID, resp.TxnID)
		require.Equal(c.t, byte(3), resp.Version)
	}
	require.Equal(c.t, r.Op, resp.Op)
	return resp
}

// closed waits for the server to close the connection without an answer.
func (c *client) closed() {
	c.t.Helper()
	f, err := c.tryFrame(patience)
	if !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
		c.t.Fatalf("the connection is open: frame %x, error %v", f, err)
	}
}

// silent checks that nothing comes for a while.
func (c *client) silent(d time.Duration) {
	c.t.Helper()
	f, err := c.tryFrame(d)
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Fatalf("something came: frame %x, error %v", f, err)
	}
}

var (
	keyK   = []byte("the key K, 20 bytes.")
	keyX   = []byte("another key X, 20 b.")
	crc, _ = digest.New(ledger.DigestCRC32C, nil)
)

// body makes the body of an entry.
func body(l, e, lac int64, payload string) []byte {
	return crc.Seal(nil, l, e, lac, int64(len(payload)), []byte(payload))
}

// add returns an add request in either form.
func addReq(p wire.Proto, l, e, lac int64, payload string) wire.Request {
	return wire.Request{Proto: p, Op: wire.OpAdd, Ledger: l, Entry: e, Key: keyK, Body: body(l, e, lac, payload)}
}

// add adds an entry, which must succeed.
func (c *client) add(l, e int64, payload string) {
	c.t.Helper()
	r := c.do(addReq(wire.V2, l, e, e-1, payload))
	require.Equal(c.t, wire.OK, r.Code)
}

// read reads an entry.
func (c *client) read(p wire.Proto, l, e int64) wire.Response {
	c.t.Helper()
	return c.do(wire.Request{Proto: p, Op: wire.OpRead, Ledger: l, Entry: e})
}

// fence makes a fencing read of the last entry.
func (c *client) fence(p wire.Proto, l int64, key []byte) wire.Response {
	c.t.Helper()
	return c.do(wire.Request{Proto: p, Op: wire.OpRead, Ledger: l, Entry: -1, Flags: wire.Fence, Key: key, HasKey: key != nil})
}

var protos = []wire.Proto{wire.V2, wire.V3}
