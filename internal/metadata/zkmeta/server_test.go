package zkmeta

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/binderylog/bindery/internal/jvmtest"
	"github.com/binderylog/bindery/internal/metadata"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server is a ZooKeeper that can be stopped and started again on the same port.
type server struct {
	*jvmtest.ZooKeeper
	t     testing.TB
	proxy *proxy // what the stores connect to
}

func startServer(t testing.TB, tick int) *server {
	z := &server{ZooKeeper: jvmtest.StartZooKeeper(t, t.TempDir(), tick), t: t}
	z.proxy = newProxy(t, z.Addr)
	return z
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
	c, err := net.Dial("tcp", z.Addr)
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
