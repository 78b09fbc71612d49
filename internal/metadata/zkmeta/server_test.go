package zkmeta

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/binderylog/bindery/internal/metadata"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serverVersion is the ZooKeeper that the tests start.
const serverVersion = "3.9.5"

// pom names what the server needs on its class path.
const pom = `<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>bindery.test</groupId><artifactId>zookeeper</artifactId><version>1</version><dependencies>
<dependency><groupId>org.apache.zookeeper</groupId><artifactId>zookeeper</artifactId><version>` + serverVersion + `</version></dependency>
<dependency><groupId>io.dropwizard.metrics</groupId><artifactId>metrics-core</artifactId><version>4.2.25</version></dependency>
<dependency><groupId>org.xerial.snappy</groupId><artifactId>snappy-java</artifactId><version>1.1.10.5</version></dependency>
</dependencies></project>`

// jars returns the folder with ZooKeeper's jars, which Maven fills once: .cache/interop/jars at the root of the repository.
func jars(t testing.TB) string {
	for _, tool := range []string{"java", "mvn"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("a real ZooKeeper needs %s on the PATH (Java 17 and Maven): %v", tool, err)
		}
	}
	cache, err := filepath.Abs("../../../.cache/interop")
	require.NoError(t, err)
	dir := filepath.Join(cache, "jars", "zookeeper-"+serverVersion)
	if _, err := os.Stat(filepath.Join(dir, "zookeeper-"+serverVersion+".jar")); err == nil {
		return dir
	}
	require.NoError(t, os.MkdirAll(dir, 0o755))
	file := filepath.Join(cache, "zookeeper-"+serverVersion+".pom.xml")
	require.NoError(t, os.WriteFile(file, []byte(pom), 0o644))
	out, err := exec.Command("mvn", "-q", "-B", "-f", file, "dependency:copy-dependencies", "-DoutputDirectory="+dir).CombinedOutput()
	if err != nil {
		t.Skipf("ZooKeeper's jars cannot be had from Maven's repository: %v\n%s", err, out)
	}
	return dir
}

// server is a ZooKeeper that can be stopped and started again on the same port.
type server struct {
	t    testing.TB
	dir  string
	addr string
	jars string
	tick int // milliseconds
	cmd  *exec.Cmd

	proxy *proxy // what the stores connect to
}

func startServer(t testing.TB, tick int) *server {
	j := jars(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	z := &server{t: t, dir: t.TempDir(), addr: l.Addr().String(), jars: j, tick: tick}
	require.NoError(t, l.Close())
	t.Cleanup(z.kill)
	z.proxy = newProxy(t, z.addr)
	z.start()
	return z
}

func (z *server) start() {
	_, port, err := net.SplitHostPort(z.addr)
	require.NoError(z.t, err)
	cfg := fmt.Sprintf("tickTime=%d\ndataDir=%s\nclientPort=%s\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\n"+
		"4lw.commands.whitelist=*\nmaxClientCnxns=0\nforceSync=no\n", z.tick, filepath.Join(z.dir, "data"), port)
	file := filepath.Join(z.dir, "zoo.cfg")
	require.NoError(z.t, os.WriteFile(file, []byte(cfg), 0o644))
	z.cmd = exec.Command("java", "-Xmx2g", "-XX:+UseSerialGC", "-cp", filepath.Join(z.jars, "*"),
		"org.apache.zookeeper.server.quorum.QuorumPeerMain", file)
	z.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(z.t, z.cmd.Start())
	require.Eventually(z.t, func() bool { return z.word("ruok") == "imok" }, 60*time.Second, 50*time.Millisecond, "ZooKeeper does not start")
}

// word asks the server a four-letter word.
func (z *server) word(w string) string {
	c, err := net.DialTimeout("tcp", z.addr, time.Second)
	if err != nil {
		return ""
	}
	defer c.Close()
	_, _ = io.WriteString(c, w)
	_ = c.SetReadDeadline(time.Now().Add(2 * time.Second))
	b, _ := io.ReadAll(c)
	return strings.TrimSpace(string(b))
}

func (z *server) kill() {
	if z.cmd != nil {
		_ = z.cmd.Process.Kill()
		_ = z.cmd.Wait()
		z.cmd = nil
	}
}

func (z *server) open(o Options) *Store {
	o.Servers = []string{z.proxy.addr()}
	s, err := Open(context.Background(), o)
	require.NoError(z.t, err)
	return s
}

// expire ends a session from outside: a second connection takes it over and closes it, as ZooKeeper's own tests do. The
// owner, whose connection the server closes at that, is kept away meanwhile.
func (z *server) expire(t *testing.T, session metadata.Session) {
	z.proxy.refuse(true)
	defer z.proxy.refuse(false)
	l := session.(*link)
	passwd := reflect.ValueOf(l.conn).Elem().FieldByName("passwd").Bytes()
	c, err := net.Dial("tcp", z.addr)
	require.NoError(t, err)
	defer c.Close()
	connect := make([]byte, 4+8, 64) // protocol version, last transaction seen
	connect = binary.BigEndian.AppendUint32(connect, 10000)
	connect = binary.BigEndian.AppendUint64(connect, uint64(l.conn.SessionID()))
	connect = append(binary.BigEndian.AppendUint32(connect, uint32(len(passwd))), passwd...)
	exchange := func(packet []byte) {
		_, err := c.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(packet))), packet...))
		require.NoError(t, err)
		head := make([]byte, 4)
		_, err = io.ReadFull(c, head)
		require.NoError(t, err)
		_, err = io.CopyN(io.Discard, c, int64(binary.BigEndian.Uint32(head)))
		require.NoError(t, err)
	}
	exchange(connect)
	exchange(append(binary.BigEndian.AppendUint32(nil, 1), 0xff, 0xff, 0xff, 0xf5)) // request 1: close the session (-11)
}
