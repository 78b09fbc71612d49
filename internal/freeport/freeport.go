// Package freeport finds TCP ports of the loopback interface that nobody listens on, for servers that are told their port before they
// start. It looks below the range that the kernel gives to outgoing connections: a port from that range may be taken by
// anybody's client before the server has it.
//
// The package starts no goroutine.
package freeport

import (
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
)

// ErrNone says that every port that was tried is in use.
var ErrNone = errors.New("found no free port")

const (
	low  = 10240
	trys = 200
)

// Picker finds ports and holds them until it is closed, so that no two are the same. The zero value is ready; it is not safe
// for concurrent use.
type Picker struct {
	held []net.Listener
}

// Next returns one more port, or ErrNone.
func (p *Picker) Next() (int, error) {
	from, to := low, ephemeralLow()
	if to-from < 1000 {
		from, to = 20000, 30000
	}
	for range trys {
		n := from + rand.IntN(to-from)
		ln, err := net.Listen("tcp", Address(n)) //nolint:noctx // binding does not wait
		if err == nil {
			p.held = append(p.held, ln)
			return n, nil
		}
	}
	return 0, ErrNone
}

// Close lets go of the ports.
func (p *Picker) Close() {
	for _, ln := range p.held {
		_ = ln.Close()
	}
	p.held = nil
}

// Some returns n ports.
func Some(n int) ([]int, error) {
	var p Picker
	defer p.Close()
	ports := make([]int, n)
	for i := range ports {
		var err error
		if ports[i], err = p.Next(); err != nil {
			return nil, err
		}
	}
	return ports, nil
}

// Test returns a port for a test.
func Test(t interface {
	Helper()
	Fatal(args ...any)
}) int {
	t.Helper()
	ports, err := Some(1)
	if err != nil {
		t.Fatal(err)
	}
	return ports[0]
}

// Address is a port of the loopback interface as host:port.
func Address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// ephemeralLow is the first port of the kernel's range for outgoing connections.
func ephemeralLow() int {
	data, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err == nil {
		if fields := strings.Fields(string(data)); len(fields) == 2 {
			if n, err := strconv.Atoi(fields[0]); err == nil {
				return n
			}
		}
	}
	return 32768
}
