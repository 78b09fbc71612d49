package jvmtest

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/apache"
)

// ZooKeeper is a server that can be killed and started again on the same port.
type ZooKeeper struct {
	*apache.ZooKeeperServer
	t testing.TB
}

// StartZooKeeper starts a server whose files and output are in dir, with a tick of so many milliseconds. It dies with the test.
func StartZooKeeper(t testing.TB, dir string, tick int) *ZooKeeper {
	t.Helper()
	server, err := apache.NewZooKeeper(t.Context(), dir, apache.ZooKeeperOptions{TickMillis: tick, NoSync: true, Flags: []string{"-Xmx2g", "-XX:+UseSerialGC"}})
	orSkip(t, err)
	z := &ZooKeeper{server, t}
	t.Cleanup(z.failed)
	t.Cleanup(z.Kill)
	z.Start()
	return z
}

// Start starts the server and waits until it serves.
func (z *ZooKeeper) Start() {
	z.t.Helper()
	require.NoError(z.t, z.ZooKeeperServer.Start(context.Background()))
}

// failed shows what the server has said, if the test has failed.
func (z *ZooKeeper) failed() {
	if z.t.Failed() {
		z.t.Logf("what ZooKeeper said:\n%s", z.Output())
	}
}
