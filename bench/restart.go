package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/binderylog/bindery/internal/loadgen"
)

// started is what the starts of a round took.
type started struct {
	Idle     float64 // resident bytes of an idle server, started after a clean stop
	Seconds  float64 // from exec after kill -9 under full load until it was ready
	Replayed float64 // journal bytes in that
}

// restart stops the server and starts it again, then kills it under load and starts it once more.
func (b *benchmark) restart(ctx context.Context, s *server) (*server, error) {
	var r started
	s.stop()
	s, err := b.startServer(ctx, "1")
	if err != nil {
		return s, err
	}
	select { // it settles
	case <-ctx.Done():
		return s, ctx.Err()
	case <-time.After(time.Second):
	}
	r.Idle = float64(loadgen.ResidentBytes(s.endpoints.PID))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = b.command(ctx, "bindery", "bench", "cluster", "--raw", s.endpoints.Bookies[0], "--outstanding", "2000", "--duration", "1h", "--warmup", "0s") // its server is killed
	}()
	select {
	case <-ctx.Done():
	case <-time.After(2 * b.duration):
	}
	s.kill()
	<-done
	start := time.Now()
	if s, err = b.startServer(ctx, "1"); err != nil {
		return s, err
	}
	r.Seconds = time.Since(start).Seconds()
	s.stop() // the log is complete then
	r.Replayed = replayed(s.log.String())
	b.starts = append(b.starts, r)
	fmt.Fprintf(os.Stderr, "  start after kill -9: %.2f s, %.0f MB replayed; idle: %.0f MB resident\n", r.Seconds, r.Replayed/1e6, r.Idle/1e6)
	return b.startServer(ctx, "1")
}

// replayed finds in a server's log how many bytes its bookie replayed.
func replayed(log string) float64 {
	for line := range strings.Lines(log) {
		var l struct {
			Msg   string  `json:"msg"`
			Bytes float64 `json:"bytes"`
		}
		if json.Unmarshal([]byte(line), &l) == nil && l.Msg == "journals replayed" {
			return l.Bytes
		}
	}
	return 0
}
