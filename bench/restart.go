package main

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"time"

	"github.com/binderylog/bindery/internal/loadgen"
	"github.com/binderylog/bindery/internal/pace"
)

// started is what the starts of a round took.
type started struct {
	Idle     float64 // resident bytes of an idle server, started after a clean stop
	Seconds  float64 // from exec after kill -9 under full load until it was ready
	Replayed float64 // journal bytes in that; 0 = unknown
}

// restart fills a peer, stops it, looks at it idle after a start, kills it under load and starts it once more.
func (b *benchmark) restart(ctx context.Context, p peer) error {
	var r started
	if err := p.start(ctx, 1); err != nil {
		return err
	}
	if err := b.prime(ctx, p, 1); err != nil {
		return err
	}
	p.stop()
	if err := p.start(ctx, 1); err != nil {
		return err
	}
	_ = pace.Sleep(ctx, time.Second) // it settles
	r.Idle = float64(loadgen.ResidentBytes(p.pids()[0]))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = b.command(ctx, p, "bindery", "bench", "cluster", "--raw", p.addresses()[0], "--outstanding", "2000", "--duration", "1h", "--warmup", "0s") // its server is killed
	}()
	_ = pace.Sleep(ctx, primeTimes*b.duration)
	p.kill()
	<-done
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	start := time.Now()
	if err := p.start(ctx, 1); err != nil {
		return err
	}
	r.Seconds = time.Since(start).Seconds()
	p.stop() // the log is complete then
	if o, ok := p.(*ours); ok {
		r.Replayed = replayed(o.p.out.Name())
	}
	b.starts[p.name()] = append(b.starts[p.name()], r)
	b.say("start after kill -9: %.2f s, %.0f MB replayed; idle: %.0f MB resident  %s", r.Seconds, r.Replayed/1e6, r.Idle/1e6, p.name())
	return nil
}

// replayed finds in a log how many bytes its bookie replayed.
func replayed(file string) float64 {
	log, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(log)) {
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
