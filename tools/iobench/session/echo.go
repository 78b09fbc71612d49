package session

import (
	"context"
	"errors"
	"io"
	"net"
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"

	"github.com/binderylog/bindery/tools/iobench/result"
)

// echoes measures what a request and its answer of these sizes take over loopback.
func echoes(ctx context.Context, entry int) (*hdr.Histogram, error) {
	const trips, warm, answer = 3000, 200, 32
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		in, out := make([]byte, entry), make([]byte, answer)
		for {
			if _, err := io.ReadFull(c, in); err != nil {
				return
			}
			if _, err := c.Write(out); err != nil {
				return
			}
		}
	}()
	h, err := trip(ctx, l.Addr().String(), entry, answer, warm, trips)
	err = errors.Join(err, l.Close())
	<-done
	return h, err
}

func trip(ctx context.Context, address string, entry, answer, warm, trips int) (*hdr.Histogram, error) {
	c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	h := result.NewHistogram()
	out, in := make([]byte, entry), make([]byte, answer)
	for i := range warm + trips {
		start := time.Now()
		if _, err := c.Write(out); err != nil {
			return nil, err
		}
		if _, err := io.ReadFull(c, in); err != nil {
			return nil, err
		}
		if i >= warm {
			result.Record(h, time.Since(start))
		}
	}
	return h, nil
}
