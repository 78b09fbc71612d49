package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"
)

// peer is a store that is measured: ours, or one that is set beside it on the same disk with the same durability.
type peer interface {
	// collectSoon has the bookies that are started from now on look for garbage every few seconds, and keep small logs.
	collectSoon()
	// start starts a number of bookies on what the directory holds, and returns when they serve.
	start(ctx context.Context, bookies int) error
	// stop ends the bookies as an operator does, kill as a power failure would but for the page cache.
	stop()
	kill()
	// remove ends everything and takes the data away.
	remove()
	name() string
	pids() []int         // of the bookies
	addresses() []string // of the bookies
	metadata() string    // URI for clients
	data() string        // where the entry logs are, somewhere below
}

// peers returns what is measured, ours first.
func (b *benchmark) peers() []peer {
	list := []peer{&ours{b: b}}
	if b.apache {
		list = append(list, &apacheBookies{b: b})
	}
	return list
}

// program is a server process.
type program struct {
	cmd    *exec.Cmd
	exited chan struct{}
	out    *os.File
}

// launch starts a command whose output goes to a file.
func launch(cmd *exec.Cmd, output string) (*program, error) {
	out, err := os.Create(output)
	if err != nil {
		return nil, err
	}
	own(cmd).Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(err, out.Close())
	}
	p := &program{cmd: cmd, exited: make(chan struct{}), out: out}
	go func() {
		_ = cmd.Wait()
		_ = out.Close()
		close(p.exited)
	}()
	return p, nil
}

// startTimeout bounds a start, with all that is to be replayed.
const startTimeout = 5 * time.Minute

// await returns once ready does, and an error with the end of its output if the program ends before or time is up.
func (p *program) await(ctx context.Context, ready func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for !ready() {
		select {
		case <-p.exited:
			return fmt.Errorf("%s ended: %s", p.cmd.Path, p.tail())
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w: %s", p.cmd.Path, ctx.Err(), p.tail())
		case <-time.After(5 * time.Millisecond):
		}
	}
	return nil
}

// outputTail is how much of a program's output an error shows.
const outputTail = 4 << 10

func (p *program) tail() string {
	b, err := os.ReadFile(p.out.Name())
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-outputTail):])
}

// stopAll ends programs as an operator does, all at once, and kills those that take longer than a minute.
func stopAll(list []*program) {
	var wg sync.WaitGroup
	for _, p := range list {
		if p == nil {
			continue
		}
		wg.Go(func() {
			_ = p.cmd.Process.Signal(syscall.SIGTERM)
			select {
			case <-p.exited:
			case <-time.After(time.Minute):
				killAll([]*program{p})
			}
		})
	}
	wg.Wait()
}

func killAll(list []*program) {
	list = slices.DeleteFunc(slices.Clone(list), func(p *program) bool { return p == nil })
	for _, p := range list {
		_ = p.cmd.Process.Kill()
	}
	for _, p := range list {
		<-p.exited
	}
}
