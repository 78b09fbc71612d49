package zkmeta

import (
	"context"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/internal/metadata/metadatatest"
)

// TestOpen looks at what a store is opened with: servers that are not there, a layout, user and password.
func TestOpen(t *testing.T) {
	z := startServer(t, 2000)
	ctx := context.Background()

	t.Run("another server", func(t *testing.T) {
		s, err := Open(ctx, Options{Servers: []string{"127.0.0.1:1", z.Addr}})
		require.NoError(t, err)
		_, err = s.Put(ctx, "/other", nil, metadata.Absent)
		require.NoError(t, err)
		require.NoError(t, s.Close())
	})

	t.Run("layout", func(t *testing.T) {
		long := z.openFor(t, Options{Layout: metadata.LongLayout})
		_, err := metadata.NewCluster(long, "/long").Init(ctx)
		require.NoError(t, err)
		kv, err := long.Get(ctx, "/long/LAYOUT")
		require.NoError(t, err)
		require.Equal(t, "2\norg.apache.bookkeeper.meta.LongHierarchicalLedgerManagerFactory:1", string(kv.Value))
		for _, s := range []*Store{long, z.openFor(t, Options{})} {
			v, err := metadata.LoadViews(ctx, s, "/long")
			require.NoError(t, err)
			require.Equal(t, "/long/000/0000/0000/0000/L0042", v.Ledgers.Key(42))
		}
		_, err = metadata.LoadViews(ctx, z.openFor(t, Options{Layout: metadata.DefaultLayout}), "/long")
		require.ErrorIs(t, err, metadata.ErrLayout)
		require.ErrorContains(t, err, "the URI asks for")
	})

	t.Run("password", func(t *testing.T) {
		own := z.openFor(t, Options{Username: "u", Password: "p"})
		_, err := own.Put(ctx, "/secret/x", []byte("1"), metadata.Absent)
		require.NoError(t, err)
		other := z.openFor(t, Options{})
		_, err = other.Get(ctx, "/secret/x")
		require.ErrorIs(t, err, zk.ErrNoAuth)
		require.ErrorContains(t, err, "denies access")
		_, err = other.Put(ctx, "/secret/x", nil, metadata.Any)
		require.ErrorIs(t, err, zk.ErrNoAuth)
		z.proxy.cut() // credentials are given again with each connection
		require.Eventually(t, func() bool { _, err := own.Get(ctx, "/secret/x"); return err == nil }, 30*time.Second, 50*time.Millisecond)
	})
}

// TestBytesOfJava compares nodes with those that BookKeeper's Java code makes.
func TestBytesOfJava(t *testing.T) {
	z := startServer(t, 2000)
	s := z.openFor(t, Options{})
	ctx := context.Background()
	v := metadata.NewViews(s, "/ledgers")
	_, err := v.Cluster.Init(ctx)
	require.NoError(t, err)
	_, err = v.Ledgers.Create(ctx, 42, metadatatest.Record())
	require.NoError(t, err)
	_, err = v.Bookies.Register(ctx, "b1:3181", metadata.ServiceInfo{Endpoints: []metadata.Endpoint{{
		ID: metadata.EndpointBookie, Port: 3181, Host: "b1", Protocol: metadata.ProtocolBookie,
	}}}, false, time.Second)
	require.NoError(t, err)
	_, err = v.Cookies.Put(ctx, "b1:3181", []byte("5\n"), metadata.Absent)
	require.NoError(t, err)
	id, err := v.Ledgers.NewID(ctx)
	require.NoError(t, err)
	require.Equal(t, ledger.ID(0), id)

	conn := s.link.conn
	for path, want := range map[string]string{
		"/ledgers":                    "",
		"/ledgers/available":          "",
		"/ledgers/available/readonly": "",
		"/ledgers/available/b1:3181":  "2\x1b\n\x06bookie\x10\xed\x18\x1a\x02b1\"\nbookie-rpc",
		"/ledgers/cookies":            "",
		"/ledgers/cookies/b1:3181":    "5\n",
		"/ledgers/00":                 "",
		"/ledgers/00/0000":            "",
		"/ledgers/idgen":              "",
	} {
		value, stat, err := conn.Get(path)
		require.NoError(t, err, path)
		require.NotNil(t, value, "%s holds no null", path)
		require.Equal(t, want, string(value), path)
		require.Equal(t, path == "/ledgers/available/b1:3181", stat.EphemeralOwner != 0, path)
		acl, _, err := conn.GetACL(path)
		require.NoError(t, err)
		require.Equal(t, zk.WorldACL(zk.PermAll), acl)
	}
	value, _, err := conn.Get("/ledgers/00/0000/L0042")
	require.NoError(t, err)
	require.Contains(t, string(value), "BookieMetadataFormatVersion\t3\n")
	require.Eventually(t, func() bool {
		left, _, err := conn.Children("/ledgers/idgen")
		return err == nil && len(left) == 0
	}, 30*time.Second, 10*time.Millisecond, "a drawn node is removed at once")
}
