package main

import (
	"bytes"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDemoted: the metadata library's words come one step less severe, and its debugging not at all.
func TestDemoted(t *testing.T) {
	var out bytes.Buffer
	level := &slog.LevelVar{}
	level.Set(slog.LevelDebug)
	log, muted := newDemoted(newLogger(&out, level))
	log.Debug("retrying of unary invoker")
	require.Empty(t, out.String())
	log.Info("of a member")
	require.Contains(t, out.String(), `"level":"DEBUG","msg":"of a member"`)
	log.Error("closed connection")
	require.Contains(t, out.String(), `"level":"WARN","msg":"closed connection"`)
	out.Reset()
	level.Set(slog.LevelInfo)
	log.Info("of a member")
	muted.Store(true)
	log.Error("closed connection")
	require.Empty(t, out.String())
}
