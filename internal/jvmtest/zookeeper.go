package jvmtest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/apache"
)

// What the server prints goes to this file in its directory; the end of it is shown when the test fails.
const (
	logFile = "zookeeper.log"
	logTail = 8 << 10
)

// ZooKeeper is a server that can be killed and started again on the same port.
type ZooKeeper struct {
	Addr string

	t         testing.TB
	classPath string
	dir       string
	cmd       *exec.Cmd
}

// StartZooKeeper starts a server whose files and output are in dir, with a tick of so many milliseconds. It dies with the test.
func StartZooKeeper(t testing.TB, dir string, tick int) *ZooKeeper {
	t.Helper()
	classPath, err := apache.ClassPath(context.Background(), apache.ZooKeeper())
	orSkip(t, err)
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	z := &ZooKeeper{Addr: l.Addr().String(), t: t, classPath: classPath, dir: dir}
	cfg := fmt.Sprintf("tickTime=%d\ndataDir=%s\nclientPort=%d\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\n"+
		"4lw.commands.whitelist=*\nmaxClientCnxns=0\nforceSync=no\n", tick, filepath.Join(dir, "data"), l.Addr().(*net.TCPAddr).Port)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "zoo.cfg"), []byte(cfg), 0o644))
	t.Cleanup(z.failed)
	t.Cleanup(z.Kill)
	z.Start()
	return z
}

// Start starts the server and waits until it serves.
func (z *ZooKeeper) Start() {
	z.t.Helper()
	f, err := os.OpenFile(filepath.Join(z.dir, logFile), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	require.NoError(z.t, err)
	defer f.Close()
	z.cmd = apache.Java(context.Background(), []string{z.classPath}, []string{"-Xmx2g", "-XX:+UseSerialGC"},
		"org.apache.zookeeper.server.quorum.QuorumPeerMain", filepath.Join(z.dir, "zoo.cfg"))
	z.cmd.Stdout, z.cmd.Stderr = f, f
	require.NoError(z.t, z.cmd.Start())
	require.Eventually(z.t, z.serves, time.Minute, 50*time.Millisecond, "ZooKeeper does not start")
}

// serves asks the server whether it has loaded its data and serves: it says that it is well before.
func (z *ZooKeeper) serves() bool {
	d := net.Dialer{Timeout: time.Second}
	c, err := d.DialContext(context.Background(), "tcp", z.Addr)
	if err != nil {
		return false
	}
	defer c.Close()
	_, _ = io.WriteString(c, "srvr")
	_ = c.SetReadDeadline(time.Now().Add(2 * time.Second))
	b, _ := io.ReadAll(c)
	return bytes.Contains(b, []byte("Mode: standalone"))
}

// failed shows what the server has said, if the test has failed.
func (z *ZooKeeper) failed() {
	if !z.t.Failed() {
		return
	}
	b, err := os.ReadFile(filepath.Join(z.dir, logFile))
	z.t.Logf("what ZooKeeper said (%v):\n%s", err, b[max(0, len(b)-logTail):])
}

// Kill ends the server at once, if it runs.
func (z *ZooKeeper) Kill() {
	if z.cmd != nil {
		_ = z.cmd.Process.Kill()
		_ = z.cmd.Wait()
		z.cmd = nil
	}
}
