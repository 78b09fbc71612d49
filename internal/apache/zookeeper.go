package apache

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/binderylog/bindery/internal/freeport"
)

// What a ZooKeeper prints goes to this file in its directory; an error shows the end of it.
const (
	zooKeeperLog     = "zookeeper.log"
	zooKeeperLogTail = 8 << 10
	zooKeeperStart   = 5 * time.Minute // how long a start may take
	zooKeeperLook    = 50 * time.Millisecond
)

// ZooKeeperOptions say how a ZooKeeper runs. The zero value is one as operators have it.
type ZooKeeperOptions struct {
	TickMillis int      // default 2,000
	NoSync     bool     // its log is not synced: for tests
	Flags      []string // of the virtual machine; default -Xmx512m
}

// ZooKeeperServer is a server of its own that can be killed and started again on the same port. It is not safe for concurrent
// use. On Linux it dies with this process.
type ZooKeeperServer struct {
	Addr string

	classPath string
	dir       string
	o         ZooKeeperOptions
	cmd       *exec.Cmd
}

// NewZooKeeper prepares a server whose files and output are in dir, on a free port of the loopback interface.
func NewZooKeeper(ctx context.Context, dir string, o ZooKeeperOptions) (*ZooKeeperServer, error) {
	classPath, err := ClassPath(ctx, ZooKeeper())
	if err != nil {
		return nil, err
	}
	port, err := freeport.Some(1)
	if err != nil {
		return nil, err
	}
	z := &ZooKeeperServer{Addr: freeport.Address(port[0]), classPath: classPath, dir: dir, o: o}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	if z.o.TickMillis == 0 {
		z.o.TickMillis = 2000
	}
	if z.o.Flags == nil {
		z.o.Flags = []string{"-Xmx512m"}
	}
	conf := fmt.Sprintf("tickTime=%d\ndataDir=%s\nclientPort=%d\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\n4lw.commands.whitelist=*\nmaxClientCnxns=0\n",
		z.o.TickMillis, filepath.Join(dir, "data"), port[0])
	if o.NoSync {
		conf += "forceSync=no\n"
	}
	return z, os.WriteFile(z.conf(), []byte(conf), 0o644)
}

func (z *ZooKeeperServer) conf() string { return filepath.Join(z.dir, "zoo.cfg") }

// Start starts the server and waits until it serves.
func (z *ZooKeeperServer) Start(ctx context.Context) error {
	f, err := os.OpenFile(filepath.Join(z.dir, zooKeeperLog), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // the child has a handle of its own
	cmd := Java(context.WithoutCancel(ctx), []string{z.classPath}, z.o.Flags, "org.apache.zookeeper.server.quorum.QuorumPeerMain", z.conf())
	cmd.Stdout, cmd.Stderr = f, f
	if err := cmd.Start(); err != nil {
		return err
	}
	z.cmd = cmd
	ctx, cancel := context.WithTimeout(ctx, zooKeeperStart)
	defer cancel()
	look := time.NewTicker(zooKeeperLook)
	defer look.Stop()
	for !z.serves(ctx) {
		select {
		case <-look.C:
		case <-ctx.Done():
			z.Kill()
			return fmt.Errorf("ZooKeeper does not start: %w:\n%s", ctx.Err(), z.Output())
		}
	}
	return nil
}

// serves asks the server whether it has loaded its data and serves: it says that it is well before.
func (z *ZooKeeperServer) serves(ctx context.Context) bool {
	c, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", z.Addr)
	if err != nil {
		return false
	}
	defer c.Close() //nolint:errcheck // only asked
	_ = c.SetDeadline(time.Now().Add(2 * time.Second))
	_, _ = io.WriteString(c, "srvr")
	b, _ := io.ReadAll(c)
	return bytes.Contains(b, []byte("Mode: standalone"))
}

// Output is the end of what the server has said.
func (z *ZooKeeperServer) Output() string {
	b, err := os.ReadFile(filepath.Join(z.dir, zooKeeperLog))
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-zooKeeperLogTail):])
}

// Kill ends the server at once, if it runs.
func (z *ZooKeeperServer) Kill() {
	if z.cmd != nil {
		_ = z.cmd.Process.Kill()
		_ = z.cmd.Wait()
		z.cmd = nil
	}
}
