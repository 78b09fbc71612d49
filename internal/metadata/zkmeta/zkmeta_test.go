package zkmeta

import (
	"testing"
	"time"

	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/internal/metadata/metadatatest"
)

func TestConformance(t *testing.T) {
	z := startServer(t, 2000)
	metadatatest.Run(t, metadatatest.Cluster{
		Directories: true,
		Open:        func(t *testing.T) metadata.Store { return z.open(Options{SessionTTL: 30 * time.Second}) },
		EndSession:  func(t *testing.T, _ metadata.Store, session metadata.Session) { z.expire(t, session) },
	})
}
