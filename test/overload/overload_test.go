//go:build overload

package overload

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/binderylog/bindery/internal/digest"
	"github.com/binderylog/bindery/internal/freeport"
	"github.com/binderylog/bindery/internal/loadgen"
	"github.com/binderylog/bindery/internal/wire"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

var duration = flag.Duration("overload.duration", time.Minute, "how long the bookie is driven")

func TestMain(m *testing.M) {
	flag.Parse()
	goleak.VerifyTestMain(m)
}

const (
	budget = 256 << 20 // storage.memory, and the bound of the bookie's anonymous and shared memory

	floods     = 4
	stuck      = 64 // write and never read
	slow       = 64 // ask for much and read it a byte at a time
	stopping   = 32 // stop in the middle of a frame
	idle       = 200
	largeEntry = 64 << 10
	readable   = 2000 // entries of the ledger that slow readers ask for
	patience   = 3 * time.Minute
)

// TestMemoryUnderOverload: the bookie stays within its budget, and a client that does everything right is served. Of the
// ledgers only that client's and the readers' exist in metadata; what the others write is garbage, which the bookie collects
// meanwhile.
func TestMemoryUnderOverload(t *testing.T) {
	b := startBookie(t)
	readableLedger, ownLedger := b.create(t, readable*largeEntry), b.create(t, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	b.watchDisk(ctx, t, cancel)
	timer := time.AfterFunc(*duration, func() {
		for end := time.Now().Add(patience); b.served.Load() == 0 && time.Now().Before(end) && ctx.Err() == nil; {
			time.Sleep(100 * time.Millisecond) // a slow machine has served nobody yet
		}
		cancel()
	})
	defer timer.Stop()
	peak := b.watchMemory(ctx, t)
	var wg sync.WaitGroup
	for range floods {
		wg.Go(func() { b.flood(ctx) })
	}
	for i := range stuck {
		wg.Go(func() { b.again(ctx, func(c net.Conn) error { return writeForEver(c, int64(1<<30+i)) }) })
	}
	for range slow {
		wg.Go(func() { b.again(ctx, func(c net.Conn) error { return readSlowly(ctx, c, readableLedger) }) })
	}
	for i := range stopping {
		wg.Go(func() { b.again(ctx, func(c net.Conn) error { return stopHalfWay(c, int64(1<<31+i)) }) })
	}
	for range idle {
		wg.Go(func() { b.again(ctx, func(c net.Conn) error { _, err := c.Read(make([]byte, 1)); return err }) })
	}
	b.behave(ctx, t, ownLedger)
	wg.Wait()
	most := peak()
	t.Logf("%v: at most %d MiB of %d MiB, %d well-behaved adds served, %d connections cut and made again", *duration, most>>20, budget>>20, b.served.Load(), b.cut.Load())
	require.Less(t, most, int64(budget), "bytes of anonymous and shared memory")
	require.Positive(t, b.served.Load())
	b.stop(t)
}

// bookie is a metadata member and a bookie, each in a process of its own.
type bookie struct {
	program      string
	dir, address string
	uri          string
	metadata     *exec.Cmd
	cmd          *exec.Cmd
	cut, served  atomic.Int64
}

func startBookie(t *testing.T) *bookie {
	program, err := filepath.Abs(os.Getenv("BINDERY_BIN"))
	require.NoError(t, err)
	b := &bookie{program: program, dir: t.TempDir()}
	port, client, peer, admin := freeport.Test(t), freeport.Test(t), freeport.Test(t), freeport.Test(t)
	b.address = fmt.Sprintf("127.0.0.1:%d", port)
	uri := fmt.Sprintf("etcd://127.0.0.1:%d/ledgers", client)
	b.uri = uri
	config := filepath.Join(b.dir, "bindery.toml")
	text := fmt.Sprintf(`
[bookie]
id = "node-1"
listen = "%s"
advertised_address = "127.0.0.1"
[metadata]
uri = "%s"
[metadata.server]
dir = "%s/metadata"
listen = "127.0.0.1:%d"
peers = ["m1=127.0.0.1:%d"]
[storage]
journal_dirs = ["%s/j"]
ledger_dirs = ["%s/l"]
memory = "%dB"
[gc]
interval = "20s"
minor.below = 0.9
minor.every = "20s"
major.below = 0.95
[disk]
allow_shared = true
full_at = 0.999
warn_at = 0.997
resume_below = 0.998
[http]
listen = "127.0.0.1:%d"
`, b.address, uri, b.dir, client, peer, b.dir, b.dir, budget, admin)
	require.NoError(t, os.WriteFile(config, []byte(text), 0o600))
	for _, d := range []string{"j", "l"} {
		require.NoError(t, os.Mkdir(filepath.Join(b.dir, d), 0o700))
	}
	run := func(args ...string) *exec.Cmd {
		cmd := exec.Command(program, args...)
		cmd.Dir = b.dir
		out, err := os.Create(filepath.Join(b.dir, strings.Join(args[:2], "-")+"-"+strconv.Itoa(freeport.Test(t))+".log"))
		require.NoError(t, err)
		defer out.Close()
		cmd.Stdout, cmd.Stderr = out, out
		require.NoError(t, cmd.Start())
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			if t.Failed() {
				text, _ := os.ReadFile(out.Name())
				t.Logf("%s:\n%s", filepath.Base(out.Name()), text)
			}
		})
		return cmd
	}
	b.metadata = run("run", "--config", config, "--roles", "metadata", "--set", fmt.Sprintf("http.listen=127.0.0.1:%d", freeport.Test(t)))
	waitFor(t, fmt.Sprintf("127.0.0.1:%d", client))
	for _, args := range [][]string{{"cluster", "init", "--metadata", uri}, {"node", "init", "--config", config}} {
		cmd := exec.Command(program, args...)
		cmd.Dir = b.dir
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%v: %s", args, out)
	}
	b.cmd = run("run", "--config", config, "--roles", "bookie")
	ready := fmt.Sprintf("http://127.0.0.1:%d/api/v2/health/ready", admin)
	require.Eventually(t, func() bool { return serves(ready) }, patience, 50*time.Millisecond, "the bookie is not ready")
	return b
}

// stop ends the bookie as an operator would and checks that it says so.
func (b *bookie) stop(t *testing.T) {
	require.NoError(t, b.cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, b.cmd.Wait())
}

func waitFor(t *testing.T, address string) {
	require.Eventually(t, func() bool {
		c, err := net.Dial("tcp", address)
		if err != nil {
			return false
		}
		_ = c.Close()
		return true
	}, patience, 50*time.Millisecond, "nobody listens on %s", address)
}

func serves(url string) bool {
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := c.Get(url)
	if err != nil {
		return false
	}
	_ = r.Body.Close()
	return r.StatusCode == http.StatusOK
}

// watchDisk ends the load once half of what the disk had free is used up: what a full disk brings is not what is tested here.
func (b *bookie) watchDisk(ctx context.Context, t *testing.T, end func()) {
	free := func() int64 {
		var s syscall.Statfs_t
		if err := syscall.Statfs(b.dir, &s); err != nil {
			t.Error(err)
		}
		return int64(s.Bavail) * s.Bsize
	}
	atStart := free()
	var wg sync.WaitGroup
	wg.Go(func() {
		for now := free(); now > atStart/2; now = free() {
			select {
			case <-ctx.Done():
				return
			case <-time.After(200 * time.Millisecond):
			}
		}
		t.Logf("ended early: half of the %d MiB that were free are used up", atStart>>20)
		end()
	})
	t.Cleanup(wg.Wait)
}

// watchMemory samples the bookie's memory; the returned function ends that and returns the highest sample.
func (b *bookie) watchMemory(ctx context.Context, t *testing.T) (peak func() int64) {
	done := make(chan int64)
	go func() {
		most := int64(0)
		defer func() { done <- most }()
		for {
			most = max(most, loadgen.ResidentBytes(b.cmd.Process.Pid))
			select {
			case <-ctx.Done():
				return
			case <-time.After(100 * time.Millisecond):
			}
		}
	}()
	return func() int64 { return <-done }
}

// again calls fn with a new connection whenever the one before was cut, until ctx ends.
func (b *bookie) again(ctx context.Context, fn func(c net.Conn) error) {
	for ctx.Err() == nil {
		c, err := net.DialTimeout("tcp", b.address, patience)
		if err != nil {
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
			continue
		}
		stop := context.AfterFunc(ctx, func() { _ = c.Close() })
		_ = fn(c)
		if stop() {
			_ = c.Close()
			b.cut.Add(1)
		}
	}
}

// flood keeps 2,000 adds in flight on a connection.
func (b *bookie) flood(ctx context.Context) {
	for ctx.Err() == nil {
		d := loadgen.Raw{Address: b.address} // other ledgers each time: those before are soon deleted
		d.Connections, d.Ledgers, d.Outstanding, d.Size, d.Duration = 1, 1, 2000, 1024, 15*time.Second
		_, _ = d.Run(ctx)
	}
}

// frames builds requests with bodies that the bookie accepts.
type frames struct {
	key [20]byte
	buf []byte
}

func newFrames() *frames { return &frames{key: digest.MasterKey(nil)} }

func (f *frames) request(r *wire.Request) []byte {
	r.Proto, r.Version, r.Key, r.HasKey = wire.V2, byte(wire.V2), f.key[:], true
	var err error
	if f.buf, err = wire.AppendRequest(f.buf[:0], r); err != nil {
		panic(err)
	}
	return f.buf
}

func (f *frames) add(id, entry int64, n int) []byte {
	body := make([]byte, 32, n)
	binary.BigEndian.PutUint64(body, uint64(id))
	binary.BigEndian.PutUint64(body[8:], uint64(entry))
	binary.BigEndian.PutUint64(body[16:], uint64(entry-1))
	return f.request(&wire.Request{Op: wire.OpAdd, Ledger: id, Entry: entry, Body: body[:n]})
}

// writeForEver sends large adds and reads no answer. It goes on to another ledger now and then: those that exist in no
// metadata are soon deleted.
func writeForEver(c net.Conn, id int64) error {
	f := newFrames()
	for entry := int64(0); ; entry++ {
		if _, err := c.Write(f.add(id+entry/1000<<10, entry, largeEntry)); err != nil {
			return err
		}
	}
}

// readSlowly asks for large entries as fast as the bookie takes requests and reads a byte now and then.
func readSlowly(ctx context.Context, c net.Conn, id int64) error {
	_ = c.(*net.TCPConn).SetReadBuffer(4 << 10)
	f := newFrames()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer c.Close()
	wg.Go(func() {
		for entry := int64(0); ; entry++ {
			if _, err := c.Write(f.request(&wire.Request{Op: wire.OpRead, Ledger: id, Entry: entry % readable})); err != nil {
				return
			}
		}
	})
	one := make([]byte, 1)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
		if _, err := c.Read(one); err != nil {
			return err
		}
	}
}

// stopHalfWay sends most of a large frame and then nothing.
func stopHalfWay(c net.Conn, id int64) error {
	frame := newFrames().add(id, 0, 4<<20)
	if _, err := c.Write(frame[:len(frame)*9/10]); err != nil {
		return err
	}
	_, err := c.Read(make([]byte, 1))
	return err
}

// create writes a ledger of n bytes in large entries with the program and returns its id.
func (b *bookie) create(t *testing.T, n int) int64 {
	name := filepath.Join(b.dir, "data")
	require.NoError(t, os.WriteFile(name, make([]byte, n), 0o600))
	cmd := exec.Command(b.program, "ledger", "write", "--metadata", b.uri, "--ensemble", "1", "--write-quorum", "1", "--ack-quorum", "1", "--split", strconv.Itoa(largeEntry), name)
	cmd.Dir, cmd.Stderr = b.dir, os.Stderr
	out, err := cmd.Output()
	require.NoError(t, err)
	id, err := strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64)
	require.NoError(t, err)
	return id
}

// answer reads one answer.
func answer(r *bufio.Reader) (wire.Code, []byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	packet := make([]byte, binary.BigEndian.Uint32(head[:]))
	if _, err := io.ReadFull(r, packet); err != nil {
		return 0, nil, err
	}
	var resp wire.Response
	if err := wire.DecodeResponse(wire.V2, packet, &resp); err != nil {
		return 0, nil, err
	}
	return resp.Code, resp.Body, nil
}

// behave adds entries one by one and reads them back, until ctx ends. Each has to be served; that takes as long as the
// others make it.
func (b *bookie) behave(ctx context.Context, t *testing.T, id int64) {
	f := newFrames()
	c, err := net.Dial("tcp", b.address)
	require.NoError(t, err)
	defer c.Close()
	r := bufio.NewReader(c)
	for entry := int64(1000); ctx.Err() == nil; entry++ {
		for _, frame := range [][]byte{
			append([]byte(nil), f.add(id, entry, 1024)...),
			f.request(&wire.Request{Op: wire.OpRead, Ledger: id, Entry: entry}),
		} {
			require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
			_, err := c.Write(frame)
			require.NoError(t, err)
			code, _, err := answer(r)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatalf("entry %d was not served within %v", entry, patience)
			}
			require.NoError(t, err)
			require.Equal(t, wire.OK, code, "entry %d", entry)
		}
		b.served.Add(1)
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}
