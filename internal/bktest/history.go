package bktest

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// historyMax bounds the lines kept: the end of a failing run is what tells.
const historyMax = 20_000

// History is what happened in one run, in order, for people to read.
type History struct {
	mu      sync.Mutex // guards what follows
	start   time.Time
	lines   []string
	dropped int
	broken  []string
}

// NewHistory returns an empty history that begins now.
func NewHistory() *History { return &History{start: time.Now()} }

// Add notes an event.
func (h *History) Add(who, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.addLocked(who, text)
}

func (h *History) addLocked(who, text string) {
	if len(h.lines) == historyMax {
		n := historyMax / 2
		h.dropped += n
		h.lines = append(h.lines[:0], h.lines[n:]...)
	}
	h.lines = append(h.lines, fmt.Sprintf("%9.4f %-10s %s", time.Since(h.start).Seconds(), who, text))
}

// Break notes a violated invariant. The run goes on, but it has failed.
func (h *History) Break(invariant, format string, args ...any) {
	text := invariant + ": " + fmt.Sprintf(format, args...)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.broken = append(h.broken, text)
	h.addLocked("VIOLATED", text)
}

// Broken returns the violations so far.
func (h *History) Broken() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]string(nil), h.broken...)
}

// WriteTo writes the history.
func (h *History) WriteTo(w io.Writer) (int64, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	text := strings.Join(h.lines, "\n") + "\n"
	if h.dropped > 0 {
		text = fmt.Sprintf("(%d earlier lines left out)\n", h.dropped) + text
	}
	n, err := io.WriteString(w, text)
	return int64(n), err
}

// Logger returns a logger whose lines become part of the history.
func (h *History) Logger(who string, level slog.Level) *slog.Logger {
	return slog.New(&historyHandler{h: h, who: who, level: level})
}

type historyHandler struct {
	h     *History
	who   string
	level slog.Level
	attrs string
}

func (l *historyHandler) Enabled(_ context.Context, level slog.Level) bool { return level >= l.level }

func (l *historyHandler) Handle(_ context.Context, r slog.Record) error {
	var b strings.Builder
	b.WriteString(r.Message)
	b.WriteString(l.attrs)
	r.Attrs(func(a slog.Attr) bool {
		fmt.Fprintf(&b, " %s=%v", a.Key, a.Value)
		return true
	})
	l.h.Add(l.who, "%s", b.String())
	return nil
}

func (l *historyHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	c := *l
	for _, a := range attrs {
		c.attrs += fmt.Sprintf(" %s=%v", a.Key, a.Value)
	}
	return &c
}

func (l *historyHandler) WithGroup(string) slog.Handler { return l }
