package main

import (
	"context"
	"net"
	"os"
	"strconv"
	"sync"
	"time"
)

// notifier tells the service manager how a process is doing, in systemd's notification protocol. Without NOTIFY_SOCKET
// it does nothing.
type notifier struct {
	conn net.Conn
	stop context.CancelFunc
	wg   sync.WaitGroup
}

// startNotifier connects to the manager and, if it asks for that, sends a sign of life at half its deadline. While
// starting says so, it asks for more time instead: a replay may take longer than the manager's patience.
func startNotifier(ctx context.Context, starting func() bool) *notifier {
	n := &notifier{}
	ctx, n.stop = context.WithCancel(ctx)
	name := os.Getenv("NOTIFY_SOCKET")
	if name == "" {
		return n
	}
	if name[0] == '@' {
		name = "\x00" + name[1:] // an abstract socket
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "unixgram", name)
	if err != nil {
		return n // a manager that can not be told has to find out by itself
	}
	n.conn = conn
	every := 10 * time.Second
	watchdog := false
	if us, err := strconv.ParseInt(os.Getenv("WATCHDOG_USEC"), 10, 64); err == nil && us > 0 {
		every, watchdog = time.Duration(us)*time.Microsecond/2, true
	}
	n.wg.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				if starting() {
					n.send("EXTEND_TIMEOUT_USEC=60000000")
				}
				if watchdog {
					n.send("WATCHDOG=1")
				}
			}
		}
	})
	return n
}

func (n *notifier) send(state string) {
	if n.conn != nil {
		_, _ = n.conn.Write([]byte(state)) // the manager may be gone; nothing depends on it
	}
}

func (n *notifier) close() {
	n.stop()
	n.wg.Wait()
	if n.conn != nil {
		n.conn.Close()
	}
}
