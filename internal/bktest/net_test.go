package bktest

import (
	"context"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// connectHosts makes a connection from host a to host b.
func connectHosts(t *testing.T, n *Net, a, b *Host) (client, server net.Conn) {
	t.Helper()
	ln, err := b.Listen(t.Context(), b.name+":1")
	require.NoError(t, err)
	client, err = a.Dial(t.Context(), b.name+":1")
	require.NoError(t, err)
	server, err = ln.Accept()
	require.NoError(t, err)
	return client, server
}

func readSome(c net.Conn) (string, error) {
	b := make([]byte, 64)
	n, err := c.Read(b)
	return string(b[:n]), err
}

func TestNetKeepsOrderAndTakesTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := NewNet(1, 10*time.Millisecond, nil)
		client, server := connectHosts(t, n, n.Join("a"), n.Join("b"))
		start := time.Now()
		for _, s := range []string{"one ", "two ", "three"} {
			_, err := client.Write([]byte(s))
			require.NoError(t, err)
		}
		require.NoError(t, client.Close())
		all, err := io.ReadAll(server)
		require.NoError(t, err)
		require.Equal(t, "one two three", string(all))
		require.Greater(t, time.Since(start), 4*time.Millisecond)
	})
}

func TestNetBlocksOneWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := NewNet(1, time.Millisecond, nil)
		client, server := connectHosts(t, n, n.Join("a"), n.Join("b"))
		n.Block("a", "b")
		_, err := client.Write([]byte("held"))
		require.NoError(t, err)
		require.NoError(t, server.SetReadDeadline(time.Now().Add(time.Minute)))
		_, err = readSome(server)
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		_, err = server.Write([]byte("passes"))
		require.NoError(t, err)
		s, err := readSome(client)
		require.NoError(t, err)
		require.Equal(t, "passes", s)
		n.Unblock("a", "b")
		require.NoError(t, server.SetReadDeadline(time.Time{}))
		s, err = readSome(server)
		require.NoError(t, err)
		require.Equal(t, "held", s)
	})
}

func TestNetKill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := NewNet(1, time.Millisecond, nil)
		a, b := n.Join("a"), n.Join("b")
		client, server := connectHosts(t, n, a, b)
		b.Kill(true)
		_, err := server.Write([]byte("from the dead"))
		require.ErrorIs(t, err, net.ErrClosed)
		require.NoError(t, client.SetReadDeadline(time.Now().Add(time.Minute)))
		_, err = readSome(client)
		require.ErrorIs(t, err, os.ErrDeadlineExceeded, "a silent death tells nobody")
		_, err = a.Dial(context.Background(), "b:1")
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		n.Join("b")
		require.NoError(t, client.SetReadDeadline(time.Time{}))
		_, err = readSome(client)
		require.ErrorIs(t, err, syscall.ECONNRESET, "its successor knows nothing of the connection")
	})
}
