package etcdmeta

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/internal/metadata/metadatatest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func startEtcd(t *testing.T, dir string) *Embedded {
	e, err := StartEmbedded(context.Background(), EmbeddedOptions{Dir: dir, UnsafeNoSync: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	return e
}

func openStore(t *testing.T, e *Embedded, o Options) *Store {
	o.Endpoints = e.Endpoints()
	s, err := Open(context.Background(), o)
	require.NoError(t, err)
	return s
}

// revoke ends a lease from outside, as its expiry would.
func revoke(t *testing.T, s *Store, session metadata.Session) {
	id, err := strconv.ParseInt(session.ID(), 16, 64)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, err = s.client.Revoke(ctx, clientv3.LeaseID(id))
	require.NoError(t, err)
}

func TestConformance(t *testing.T) {
	e := startEtcd(t, t.TempDir())
	metadatatest.Run(t, metadatatest.Cluster{
		Open: func(t *testing.T) metadata.Store { return openStore(t, e, Options{SessionTTL: 10 * time.Second}) },
		EndSession: func(t *testing.T, s metadata.Store, session metadata.Session) {
			revoke(t, s.(*Store), session)
		},
	})
}
