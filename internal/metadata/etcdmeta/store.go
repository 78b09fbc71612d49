// Package etcdmeta keeps the cluster's metadata in etcd, an external cluster or one that this process runs itself
// (StartEmbedded).
//
// Keys are the very paths that ZooKeeper would have, in the layout of Pulsar's etcd driver: a record is at
// "/ledgers/00/0000/L0042", parents exist only where someone put them, ephemeral keys hang on a lease, and a sequence is
// the number of writes of its parent key. A Version is the key's modRevision.
//
// Invariants:
//   - Reads go through etcd's linearizable path and are tried again until the time-out.
//   - A write is sent again only if etcd surely did not take the first one. If that is not sure, the caller gets
//     ErrUnknownOutcome: a proposal may sit in a leader's log for a while and be applied after any read.
//   - There is at most one lease per Store. It survives a restart or leader change of etcd that is shorter than its life;
//     otherwise Session.Done fires and a new lease must be asked for.
//
// Goroutines: one per session and one per watch, besides those of etcd's client; all end with Close, which waits for them.
// Limits: those of package metadata.
package etcdmeta

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	backoffgrpc "google.golang.org/grpc/backoff"

	"github.com/binderylog/bindery/internal/metadata"
)

// Options configure a Store.
type Options struct {
	Endpoints  []string      // "host:port" or URLs
	Timeout    time.Duration // of one call, retries included; default 30 s
	SessionTTL time.Duration // how long ephemeral keys outlive a dead process; whole seconds, default 10 s
	TLS        *tls.Config   // nil: plain text unless an endpoint is an https URL
	Username   string
	Password   string
	Logger     *slog.Logger
}

// Defaults and bounds of Options.
const (
	defaultTimeout    = 30 * time.Second
	defaultSessionTTL = 10 * time.Second
	minSessionTTL     = 2 * time.Second // etcd's own lower bound for default election time-outs

	// attemptTimeout bounds one attempt of a read, so that a member that hangs does not use up the whole time-out.
	attemptTimeout = 5 * time.Second
	closeTimeout   = 2 * time.Second
	// keepalive pings find a dead connection. etcd's servers allow one every 5 s and break connections that ping more often,
	// also if it was the machine that delayed one ping so that it met the next.
	keepaliveEvery = 10 * time.Second
	keepaliveWait  = 3 * time.Second
)

// EnsureDefaults fills in what is not set.
func (o *Options) EnsureDefaults() {
	if o.Timeout <= 0 {
		o.Timeout = defaultTimeout
	}
	if o.SessionTTL <= 0 {
		o.SessionTTL = defaultSessionTTL
	}
	o.SessionTTL = max(o.SessionTTL.Round(time.Second), minSessionTTL)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

// Store is a metadata.Store in etcd.
type Store struct {
	o      Options
	client *clientv3.Client

	stop   context.Context // ends with Close
	cancel context.CancelFunc
	tasks  sync.WaitGroup // sessions and watches

	mu     sync.Mutex // guards closed, and adding to tasks
	closed bool

	sessionSlot chan struct{} // capacity one: held while session is looked at or a lease is being granted
	session     *session      // guarded by sessionSlot
}

// Open connects to etcd. It fails with ErrUnavailable if no member answers within ctx and the time-out.
func Open(ctx context.Context, o Options) (*Store, error) {
	o.EnsureDefaults()
	if len(o.Endpoints) == 0 {
		return nil, errors.New("etcd: no endpoint given")
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints:            o.Endpoints,
		DialTimeout:          o.Timeout, // bounds the log-in with user and password; connecting does not block
		DialKeepAliveTime:    keepaliveEvery,
		DialKeepAliveTimeout: keepaliveWait,
		PermitWithoutStream:  false, // etcd breaks connections that ping while nothing is under way
		TLS:                  o.TLS,
		Username:             o.Username,
		Password:             o.Password,
		Logger:               zapLogger(o.Logger),
		MaxCallSendMsgSize:   2 * metadata.ValueMax,
		DialOptions: []grpc.DialOption{
			grpc.WithChainUnaryInterceptor(noteSent),
			// grpc's own back-off grows to two minutes, longer than a session lives.
			grpc.WithConnectParams(grpc.ConnectParams{
				Backoff:           backoffgrpc.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
				MinConnectTimeout: 3 * time.Second,
			}),
		},
	})
	if err != nil {
		return nil, fmt.Errorf("etcd at %s: %w", strings.Join(o.Endpoints, ", "), err)
	}
	s := &Store{o: o, client: client, sessionSlot: make(chan struct{}, 1)}
	s.stop, s.cancel = context.WithCancel(context.Background())
	// Any read tells whether someone is there; the key need not exist.
	if _, err := s.Keys(ctx, "/", "", 1); err != nil {
		_ = s.Close()
		if errors.Is(err, context.DeadlineExceeded) {
			return nil, fmt.Errorf("etcd at %s: no member answered in time (%w)", strings.Join(o.Endpoints, ", "), err)
		}
		return nil, fmt.Errorf("etcd at %s: %w", strings.Join(o.Endpoints, ", "), err)
	}
	return s, nil
}

// begin derives the context of one call: it ends with the caller's, with the time-out, and with the store.
func (s *Store) begin(ctx context.Context) (context.Context, context.CancelFunc, error) {
	if s.stop.Err() != nil {
		return nil, nil, metadata.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", metadata.ErrUnavailable, err)
	}
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	unhook := context.AfterFunc(s.stop, cancel)
	return ctx, func() { unhook(); cancel() }, nil
}

// read runs a read until it succeeds, fails for good, or time is up.
func (s *Store) read(ctx context.Context, fn func(context.Context) error) error {
	ctx, cancel, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	for pause := newBackoff(); ; {
		actx, acancel := context.WithTimeout(ctx, attemptTimeout)
		err := fn(actx)
		acancel()
		if err == nil {
			return nil
		}
		if final(err) {
			return wrapFinal(err)
		}
		if !pause.wait(ctx) {
			return s.endOfTime(ctx, metadata.ErrUnavailable, err)
		}
	}
}

// endOfTime builds the error of a call that ran out of time, or whose store was closed.
func (s *Store) endOfTime(ctx context.Context, kind, last error) error {
	if s.stop.Err() != nil && errors.Is(kind, metadata.ErrUnavailable) {
		return metadata.ErrClosed
	}
	if cause := ctx.Err(); cause != nil && !errors.Is(last, cause) {
		return fmt.Errorf("%w: %w: %w", kind, cause, last)
	}
	return fmt.Errorf("%w: %w", kind, last)
}

// Get implements metadata.Store.
func (s *Store) Get(ctx context.Context, key string) (metadata.KV, error) {
	var resp *clientv3.GetResponse
	err := s.read(ctx, func(ctx context.Context) (err error) {
		resp, err = s.client.Get(ctx, key)
		return err
	})
	if err != nil {
		return metadata.KV{}, err
	}
	if len(resp.Kvs) == 0 {
		return metadata.KV{}, fmt.Errorf("%s: %w", key, metadata.ErrNotFound)
	}
	return toKV(resp.Kvs[0]), nil
}

// List implements metadata.Store.
func (s *Store) List(ctx context.Context, prefix, after string, limit int) ([]metadata.KV, error) {
	resp, err := s.page(ctx, prefix, after, limit)
	if err != nil {
		return nil, err
	}
	out := make([]metadata.KV, len(resp.Kvs))
	for i, kv := range resp.Kvs {
		out[i] = toKV(kv)
	}
	return out, nil
}

// Keys implements metadata.Store.
func (s *Store) Keys(ctx context.Context, prefix, after string, limit int) ([]string, error) {
	resp, err := s.page(ctx, prefix, after, limit, clientv3.WithKeysOnly())
	if err != nil {
		return nil, err
	}
	out := make([]string, len(resp.Kvs))
	for i, kv := range resp.Kvs {
		out[i] = string(kv.Key)
	}
	return out, nil
}

// page reads one page of a prefix in key order. A range read is sorted by key by nature; asking etcd to sort would make it
// read everything first.
func (s *Store) page(ctx context.Context, prefix, after string, limit int, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	if limit < 1 {
		return &clientv3.GetResponse{}, nil
	}
	from := prefix
	if after >= prefix {
		from = after + "\x00"
	}
	end := clientv3.GetPrefixRangeEnd(prefix)
	if from >= end && end != "\x00" {
		return &clientv3.GetResponse{}, nil
	}
	opts = append(opts, clientv3.WithRange(end), clientv3.WithLimit(int64(limit)))
	var resp *clientv3.GetResponse
	err := s.read(ctx, func(ctx context.Context) (err error) {
		resp, err = s.client.Get(ctx, from, opts...)
		return err
	})
	return resp, err
}

// Put implements metadata.Store.
func (s *Store) Put(ctx context.Context, key string, value []byte, v metadata.Version) (metadata.Version, error) {
	return metadata.PutOne(ctx, s, key, value, v)
}

// Delete implements metadata.Store.
func (s *Store) Delete(ctx context.Context, key string, v metadata.Version) error {
	return metadata.DeleteOne(ctx, s, key, v)
}

// Close implements metadata.Store.
func (s *Store) Close() error {
	s.mu.Lock()
	closed := s.closed
	s.closed = true
	s.mu.Unlock()
	if closed {
		return nil
	}
	s.endSession()
	s.cancel()
	err := s.client.Close()
	s.tasks.Wait()
	if err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("close etcd client: %w", err)
	}
	return nil
}

// task starts a goroutine that Close waits for. It reports false if the store is closed.
func (s *Store) task(fn func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.tasks.Go(fn)
	return true
}
