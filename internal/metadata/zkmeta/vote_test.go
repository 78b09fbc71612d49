package zkmeta

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/internal/metadata/metadatatest"
)

// TestVotes elects auditors as Java's own driver does: the oldest ephemeral sequential node is elected.
func TestVotes(t *testing.T) {
	z := startServer(t, 500)
	metadatatest.RunElection(t, metadatatest.Cluster{
		Directories: true,
		Open:        func(*testing.T) metadata.Store { return z.open(Options{SessionTTL: 8 * time.Second, Votes: true}) },
	})
	s := z.open(Options{SessionTTL: 8 * time.Second, Votes: true})
	defer func() { require.NoError(t, s.Close()) }()
	e := metadata.NewElection(s, "/votes")
	won, err := e.Campaign(t.Context(), "bk1:3181")
	require.NoError(t, err)
	keys, err := s.List(t.Context(), "/votes/underreplication/auditorelection/", "", 10)
	require.NoError(t, err)
	require.Len(t, keys, 1)
	require.Equal(t, "/votes/underreplication/auditorelection/V_0000000000", keys[0].Key)
	require.Equal(t, "bookieId: \"bk1:3181\"\n", string(keys[0].Value))
	text, err := s.Get(t.Context(), "/votes/underreplication/auditorelection")
	require.NoError(t, err)
	require.Equal(t, "bookieId: \"bk1:3181\"\n", string(text.Value), "the elected one is named for people, too")
	require.NoError(t, won.Resign(t.Context()))
	<-won.Done()
}
