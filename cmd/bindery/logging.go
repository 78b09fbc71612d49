package main

import (
	"io"
	"log/slog"
	"math"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/binderylog/bindery/internal/config"
)

// newLogger logs text on a terminal, where a person reads, and JSON lines otherwise, where a collector does.
func newLogger(w io.Writer, level string) *slog.Logger {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		l = slog.LevelInfo // the configuration has checked the word
	}
	o := &slog.HandlerOptions{Level: l}
	if isTerminal(w) {
		return slog.New(slog.NewTextHandler(w, o))
	}
	return slog.New(slog.NewJSONHandler(w, o))
}

// applyLimits sets the collector's memory limit and the number of processors of the runtime, unless the environment has.
// A goroutine in a blocking durable write keeps its processor until the runtime takes it back, so each journal group in
// flight gets one of its own.
func applyLimits(e config.Effective, log *slog.Logger) {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(e.GoMemLimit)
	}
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(e.GoMaxProcs)
	}
	limit := debug.SetMemoryLimit(-1)
	shown := "none"
	if limit != math.MaxInt64 {
		shown = config.Size(limit).String()
	}
	log.Info("memory and processors",
		"memory", config.Size(e.Memory).String(), "write_cache", config.Size(e.WriteCache).String(), "read_cache", config.Size(e.ReadCache).String(),
		"in_flight", config.Size(e.InFlight).String(), "go_memory_limit", shown, "gomaxprocs", runtime.GOMAXPROCS(0))
}
