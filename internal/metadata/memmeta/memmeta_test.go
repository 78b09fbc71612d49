package memmeta_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/internal/metadata/memmeta"
	"github.com/binderylog/bindery/internal/metadata/metadatatest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	tree := memmeta.NewTree()
	metadatatest.Run(t, metadatatest.Cluster{
		Open: func(*testing.T) metadata.Store { return tree.Open() },
		EndSession: func(t *testing.T, s metadata.Store, _ metadata.Session) {
			require.True(t, s.(*memmeta.Store).ExpireSession())
		},
	})
}
