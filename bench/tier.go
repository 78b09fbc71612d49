package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// besideTier is what readers that follow a ledger saw in a round by themselves, and while another ledger was read from the same
// bookies to be offloaded: p50 and p99 in us.
type besideTier struct {
	AloneP50, Alone   float64
	BesideP50, Beside float64
	Rate              float64 // bytes a second that went out
}

// tierRate is what a worker reads from bookies, by default, in bytes a second.
const tierRate = 64 << 20

// tierReaders follow a ledger that is written at a given rate.
func tierReaders() load {
	return load{args: []string{"bench", "cluster", "--tail", "--ledgers", "1", "--rate", "1000"}, open: true}
}

// tier measures readers of the tail by themselves, and beside the offload of a ledger to six folders on the same disk.
func (b *benchmark) tier(ctx context.Context, p peer) error {
	o, ok := p.(*ours)
	if !ok {
		return errors.New("only bindery has a tier")
	}
	o.folders = filepath.Join(b.dir, "tier")
	if err := p.start(ctx, 3); err != nil {
		return err
	}
	size := int64((b.warmup + b.open + 2*commandTakes).Seconds() * tierRate)
	write := b.clientCommand(ctx, p, "ledger", "write", "--split", "64KiB", "--no-progress", "-")
	write.Stdin = io.LimitReader(endless{}, size)
	id, err := write.Output()
	if err != nil {
		return fmt.Errorf("write the ledger that is to be offloaded: %w", err)
	}
	alone, err := b.measure(ctx, p, tierReaders())
	if err != nil {
		return err
	}
	out := b.clientCommand(ctx, p, "offload", "ledger", strings.TrimSpace(string(id)), "--no-progress")
	out.Env = os.Environ() // the standalone of this directory says where metadata and folders are
	var said bytes.Buffer
	out.Stdout, out.Stderr = &said, &said
	if err := out.Start(); err != nil {
		return err
	}
	var ended time.Time
	begun, done := time.Now(), make(chan error, 1)
	go func() {
		err := out.Wait()
		ended = time.Now()
		done <- err
	}()
	beside, err := b.measure(ctx, p, tierReaders())
	measured := time.Now()
	if err != nil {
		_ = out.Process.Kill()
		return errors.Join(err, <-done)
	}
	if err := <-done; err != nil {
		return fmt.Errorf("offload: %w: %s", err, bytes.TrimSpace(said.Bytes()))
	}
	if over := measured.Sub(ended); over > b.open/4 {
		return fmt.Errorf("the offload of %d MB was over %s before the readers had been measured", size/1e6, over.Round(time.Second))
	}
	took := ended.Sub(begun)
	r := besideTier{AloneP50: alone.Latency["p50"], Alone: alone.Latency["p99"], BesideP50: beside.Latency["p50"], Beside: beside.Latency["p99"], Rate: float64(size) / took.Seconds()}
	b.tiers[p.name()] = append(b.tiers[p.name()], r)
	b.say("offload: %.0f MB/s; p99 of readers of the tail %.2f ms alone, %.2f ms beside it  %s", r.Rate/1e6, r.Alone/1e3, r.Beside/1e3, p.name())
	return nil
}
