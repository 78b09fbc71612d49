package main

import (
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
)

// portPicker finds free ports and holds them until it has found them all. It looks below the range that the kernel
// gives to outgoing connections: a port from that range may be taken by anybody's client at the next start.
type portPicker struct {
	held []net.Listener
}

const (
	portLow  = 10240
	portTrys = 200
)

func (p *portPicker) next(port *int) error {
	low, high := portLow, ephemeralLow()
	if high-low < 1000 {
		low, high = 20000, 30000
	}
	for range portTrys {
		n := low + rand.IntN(high-low)
		ln, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(n))) //nolint:noctx // binding does not wait
		if err == nil {
			p.held = append(p.held, ln)
			*port = n
			return nil
		}
	}
	return errors.New("found no free port: name a base port with --ports")
}

func (p *portPicker) close() {
	for _, ln := range p.held {
		ln.Close()
	}
}

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
