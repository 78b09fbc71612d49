// Command pulsar drives Pulsar's Go client by lines on standard input, for the interop tests. Each line is a command with
// arguments, each answer one line: "ok" and values, or "err" and a message.
//
// Messages of a topic are numbered from 0. Message n is its number, as eight bytes, followed by size + n mod 5 bytes of which
// byte i is 13n + 31i. A message that was sent may arrive more than once, as Pulsar promises no better without deduplication;
// new numbers must arrive in order and whole.
//
// Goroutines: one for each topic that is under load, which stop waits for.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/log"
)

// patience bounds each command: a broker may be killed and started again meanwhile.
const patience = 3 * time.Minute

// ackEvery is how many messages a consumer takes for each acknowledgement of all until then.
const ackEvery = 200

// topic is what was sent to one topic by this process.
type topic struct {
	producer pulsar.Producer
	next     int64        // number of the next message; only its sender touches it
	acked    atomic.Int64 // messages that the broker has acknowledged
	failed   atomic.Pointer[error]
	pending  sync.WaitGroup
	stop     chan struct{} // not nil: a load is running
	stopped  chan struct{}
}

type driver struct {
	client pulsar.Client
	topics map[string]*topic
}

func main() {
	d := &driver{topics: map[string]*topic{}}
	out := bufio.NewWriter(os.Stdout)
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		values, err := d.run(strings.Fields(in.Text()))
		if err != nil {
			fmt.Fprintln(out, "err", strings.ReplaceAll(err.Error(), "\n", " "))
		} else {
			fmt.Fprintln(out, strings.TrimSpace("ok "+values))
		}
		if out.Flush() != nil {
			return
		}
	}
}

func (d *driver) run(a []string) (string, error) {
	if len(a) == 0 {
		return "", errors.New("empty command")
	}
	switch {
	case a[0] == "connect" && len(a) == 2: // URL
		var err error
		d.client, err = pulsar.NewClient(pulsar.ClientOptions{
			URL: a[1], ConnectionTimeout: 3 * time.Second, OperationTimeout: time.Minute, KeepAliveInterval: 5 * time.Second,
			Logger: log.NewLoggerWithSlog(slog.New(slog.NewTextHandler(os.Stderr, nil))),
		})
		return "", err
	case a[0] == "subscribe" && len(a) == 3: // TOPIC SUBSCRIPTION: from the beginning
		c, err := d.subscribe(a[1], a[2])
		if err == nil {
			c.Close()
		}
		return "", err
	case a[0] == "produce" && len(a) == 4: // TOPIC COUNT SIZE: returns the number of the last message
		return d.produce(a[1], a[2], a[3])
	case a[0] == "start" && len(a) == 4: // TOPIC RATE SIZE: sends in the background, RATE messages a second
		return "", d.start(a[1], a[2], a[3])
	case a[0] == "acked" && len(a) == 2: // TOPIC
		t, err := d.topic(a[1])
		if err != nil {
			return "", err
		}
		return strconv.FormatInt(t.acked.Load(), 10), nil
	case a[0] == "stop" && len(a) == 2: // TOPIC: ends the load and waits until all is acknowledged
		return d.stop(a[1])
	case a[0] == "consume" && len(a) == 4: // TOPIC SUBSCRIPTION FIRST: messages from FIRST on, all that was acknowledged
		return d.consume(a[1], a[2], a[3])
	}
	return "", fmt.Errorf("unknown command %q", a)
}

func (d *driver) subscribe(name, subscription string) (pulsar.Consumer, error) {
	return d.client.Subscribe(pulsar.ConsumerOptions{
		Topic: name, SubscriptionName: subscription, Type: pulsar.Exclusive,
		SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest, AckWithResponse: true,
	})
}

func (d *driver) topic(name string) (*topic, error) {
	if t := d.topics[name]; t != nil {
		return t, nil
	}
	// One entry for each message, sent for as long as it takes.
	p, err := d.client.CreateProducer(pulsar.ProducerOptions{Topic: name, DisableBatching: true, SendTimeout: -1, MaxPendingMessages: 500})
	if err != nil {
		return nil, err
	}
	t := &topic{producer: p}
	d.topics[name] = t
	return t, nil
}

// send sends one message. It blocks while too many are under way.
func (t *topic) send(size int) {
	t.pending.Add(1)
	t.producer.SendAsync(context.Background(), &pulsar.ProducerMessage{Payload: content(t.next, size)},
		func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) {
			defer t.pending.Done()
			if err != nil {
				t.failed.CompareAndSwap(nil, &err)
				return
			}
			t.acked.Add(1)
		})
	t.next++
}

// settled waits for the answers to all that was sent, and returns the number of the last message.
func (t *topic) settled() (string, error) {
	done := make(chan struct{})
	go func() {
		t.pending.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(patience):
		return "", fmt.Errorf("%d of %d messages are acknowledged after %v", t.acked.Load(), t.next, patience)
	}
	if err := t.failed.Load(); err != nil {
		return "", *err
	}
	return strconv.FormatInt(t.next-1, 10), nil
}

func (d *driver) produce(name, count, size string) (string, error) {
	t, err := d.topic(name)
	if err != nil {
		return "", err
	}
	n, err1 := strconv.Atoi(count)
	s, err2 := strconv.Atoi(size)
	if err := errors.Join(err1, err2); err != nil {
		return "", err
	}
	for range n {
		t.send(s)
	}
	return t.settled()
}

func (d *driver) start(name, rate, size string) error {
	t, err := d.topic(name)
	if err != nil {
		return err
	}
	n, err1 := strconv.Atoi(rate)
	s, err2 := strconv.Atoi(size)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	if t.stop != nil || n < 1 {
		return errors.New("a load is running already, or no rate was given")
	}
	t.stop, t.stopped = make(chan struct{}), make(chan struct{})
	go func() {
		defer close(t.stopped)
		tick := time.NewTicker(time.Second / time.Duration(n))
		defer tick.Stop()
		for {
			select {
			case <-t.stop:
				return
			case <-tick.C:
				t.send(s)
			}
		}
	}()
	return nil
}

func (d *driver) stop(name string) (string, error) {
	t, err := d.topic(name)
	if err != nil {
		return "", err
	}
	if t.stop == nil {
		return "", errors.New("no load is running")
	}
	close(t.stop)
	select {
	case <-t.stopped:
	case <-time.After(patience):
		return "", fmt.Errorf("a message cannot be sent; %d of %d are acknowledged after %v", t.acked.Load(), t.next, patience)
	}
	t.stop = nil
	return t.settled()
}

// consume reads and acknowledges everything from message first on. It returns how many messages there were and how many of
// them again.
func (d *driver) consume(name, subscription, first string) (string, error) {
	t, err := d.topic(name)
	if err != nil {
		return "", err
	}
	next, err := strconv.ParseInt(first, 10, 64)
	if err != nil {
		return "", err
	}
	c, err := d.subscribe(name, subscription)
	if err != nil {
		return "", err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	begin, again := next, 0
	for next < t.next {
		m, err := c.Receive(ctx)
		if err != nil {
			return "", fmt.Errorf("message %d of %d: %w", next, t.next, err)
		}
		n, err := number(m.Payload())
		switch {
		case err != nil:
			return "", err
		case n > next:
			return "", fmt.Errorf("message %d comes after %d: %d are missing", n, next-1, n-next)
		case n < next:
			again++
		default:
			next++
		}
		if n%ackEvery == 0 || next == t.next {
			if err := c.AckCumulative(m); err != nil {
				return "", fmt.Errorf("acknowledge message %d: %w", n, err)
			}
		}
	}
	return fmt.Sprint(next-begin, " ", again), nil
}

func content(n int64, size int) []byte {
	b := make([]byte, 8+size+int(n%5))
	binary.BigEndian.PutUint64(b, uint64(n))
	for i := range b[8:] {
		b[8+i] = byte(13*n + 31*int64(i))
	}
	return b
}

// number checks a message and returns its number.
func number(payload []byte) (int64, error) {
	if len(payload) < 8 {
		return 0, fmt.Errorf("a message of %d bytes", len(payload))
	}
	n := int64(binary.BigEndian.Uint64(payload))
	size := len(payload) - 8 - int(n%5)
	if n < 0 || size < 0 || !bytes.Equal(payload, content(n, size)) {
		return 0, fmt.Errorf("the content of message %d is wrong", n)
	}
	return n, nil
}
