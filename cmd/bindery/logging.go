package main

import (
	"context"
	"io"
	"log/slog"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"

	"github.com/binderylog/bindery/internal/config"
)

// logLevel is the level that log.level names.
func logLevel(word string) slog.Level {
	var l slog.Level
	if err := l.UnmarshalText([]byte(word)); err != nil {
		return slog.LevelInfo // the configuration has checked the word
	}
	return l
}

// newLogger logs text on a terminal, where a person reads, and JSON lines otherwise, where a collector does.
func newLogger(w io.Writer, level slog.Leveler) *slog.Logger {
	o := &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Value.Kind() == slog.KindDuration { // JSON would show nanoseconds without saying so
			a.Value = slog.StringValue(a.Value.Duration().String())
		}
		return a
	}}
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
		shown = config.Size(limit).Approx()
	}
	attrs := []any{"memory", config.Size(e.Memory).Approx()}
	if e.WriteCache > 0 { // of a bookie
		attrs = append(attrs, "write_cache", config.Size(e.WriteCache).Approx(), "read_cache", config.Size(e.ReadCache).Approx(), "in_flight", config.Size(e.InFlight).Approx())
	}
	log.Info("memory and processors", append(attrs, "go_memory_limit", shown, "gomaxprocs", runtime.GOMAXPROCS(0))...)
}

// demote passes what the metadata library logs on, one step less severe than the library thinks it is: it warns of what
// is normal here and calls every closed connection an error. Once muted it passes nothing; a stop looks like a failure
// to it.
type demote struct {
	slog.Handler
	muted *atomic.Bool
}

func newDemoted(log *slog.Logger) (*slog.Logger, *atomic.Bool) {
	muted := &atomic.Bool{}
	return slog.New(demote{log.Handler(), muted}), muted
}

// harmless are errors of the library that go by themselves: a new member can not know the version of its storage before its
// first snapshot, and asks again.
var harmless = []string{"failed to update storage version"}

func demoted(l slog.Level) slog.Level {
	if l >= slog.LevelError {
		return slog.LevelWarn
	}
	return slog.LevelDebug
}

// Enabled implements slog.Handler. What the library itself calls debugging, such as every first attempt of a call, is never
// of use here.
func (d demote) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelInfo && !d.muted.Load() && d.Handler.Enabled(ctx, demoted(l))
}

// Handle implements slog.Handler.
func (d demote) Handle(ctx context.Context, r slog.Record) error {
	r.Level = demoted(r.Level)
	for _, text := range harmless {
		if strings.Contains(r.Message, text) {
			r.Level = slog.LevelDebug
		}
	}
	if !d.Handler.Enabled(ctx, r.Level) {
		return nil
	}
	return d.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (d demote) WithAttrs(a []slog.Attr) slog.Handler { return demote{d.Handler.WithAttrs(a), d.muted} }

// WithGroup implements slog.Handler.
func (d demote) WithGroup(name string) slog.Handler {
	return demote{d.Handler.WithGroup(name), d.muted}
}
