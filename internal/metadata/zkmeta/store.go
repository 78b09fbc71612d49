// Package zkmeta keeps the cluster's metadata in ZooKeeper, in the very nodes and bytes that Apache BookKeeper uses, so that
// both can serve one cluster.
//
// A key is a node. What differs from engines without directories: the parents of a key exist too, as keys with empty values,
// made when they are missing; a key that has others below it cannot be deleted (metadata.ErrNotEmpty); keys are UTF-8 paths
// without empty or dotted parts. A Version is the node's data version, which begins at 0; a key that is deleted and made again
// begins anew. A sequence is ZooKeeper's own: an ephemeral sequential node that is deleted at once.
//
// Invariants:
//   - Every read is preceded by a sync that began after the call did; concurrent reads share one.
//   - One session has one connection object, which is never used for a second session: what was queued for a session that
//     has ended is not sent in the name of its successor. The next call starts a new one.
//   - A session ends when ZooKeeper says so, or when nothing was heard from it for the session's life.
//   - A write is sent again only if it was surely not sent or surely refused.
//   - Watches re-read what an event names; after a lost connection the client sets them again with the last transaction seen,
//     after a lost session everything is read anew and compared with what was reported.
//   - Ledger nodes have no children: nothing below one is listed. /zookeeper is not listed either.
//
// Goroutines: one per session, watch and call under way, and for a moment those that batch syncs, draws, single writes and the
// removal of empty parents, besides those of the client library; all end with Close, which waits for them. A watch that has ended leaves
// its one-shot watches with ZooKeeper until they fire or the session ends. Limits: those of package metadata.
package zkmeta

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/binderylog/bindery/internal/metadata"
)

// Options configure a Store.
type Options struct {
	Servers    []string      // "host:port"
	Timeout    time.Duration // of one call, retries included; default 30 s
	SessionTTL time.Duration // how long ephemeral keys outlive a dead process; default 10 s; the servers may raise or lower it
	TLS        *tls.Config   // nil: plain text
	Username   string        // with Password: digest authentication; new nodes then belong to this user alone
	Password   string
	Layout     metadata.Layout // the layout that the cluster must have; the zero value: the stored one
	Votes      bool            // auditors are elected as Java's own driver does it, by votes
	Logger     *slog.Logger
}

// Defaults of Options, and bounds.
const (
	defaultTimeout    = 30 * time.Second
	defaultSessionTTL = 10 * time.Second
	minSessionTTL     = time.Second

	dialTimeout  = 3 * time.Second
	greetTimeout = 5 * time.Second // from the connection to the session
)

// EnsureDefaults fills in what is not set.
func (o *Options) EnsureDefaults() {
	if o.Timeout <= 0 {
		o.Timeout = defaultTimeout
	}
	if o.SessionTTL <= 0 {
		o.SessionTTL = defaultSessionTTL
	}
	o.SessionTTL = max(o.SessionTTL, minSessionTTL)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

// Store is a metadata.Store in ZooKeeper.
type Store struct {
	o   Options
	acl []zk.ACL // of new nodes

	stop   context.Context // ends with Close
	cancel context.CancelFunc
	tasks  sync.WaitGroup

	mu     sync.Mutex // guards what follows, and adding to tasks
	closed bool
	link   *link // the current session, or the last one

	prune pruner
}

// Open connects to ZooKeeper. It fails with ErrUnavailable if no server grants a session within ctx and the time-out.
func Open(ctx context.Context, o Options) (*Store, error) {
	o.EnsureDefaults()
	if len(o.Servers) == 0 {
		return nil, errors.New("zookeeper: no server given")
	}
	s := &Store{o: o, acl: zk.WorldACL(zk.PermAll)}
	if o.Username != "" {
		s.acl = zk.AuthACL(zk.PermAll)
	}
	s.prune.s = s
	s.stop, s.cancel = context.WithCancel(context.Background())
	octx, cancel, err := s.begin(ctx)
	if err != nil {
		s.cancel()
		return nil, err
	}
	defer cancel()
	if _, err := s.live(octx); err != nil {
		_ = s.Close()
		return nil, fmt.Errorf("zookeeper at %s: no server granted a session in time (%w)", strings.Join(o.Servers, ", "), err)
	}
	return s, nil
}

// WantedLayout implements metadata.LayoutChooser.
func (s *Store) WantedLayout() (metadata.Layout, bool) {
	return s.o.Layout, s.o.Layout != metadata.Layout{}
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

// live returns a session that is connected, starting one if there is none.
func (s *Store) live(ctx context.Context) (*link, error) {
	for {
		l, err := s.current()
		if err != nil {
			return nil, err
		}
		err = l.wait(ctx)
		if err == nil {
			return l, nil
		}
		if !errors.Is(err, errEnded) {
			return nil, s.endOfTime(ctx, metadata.ErrUnavailable, err)
		}
	}
}

// current returns the session that has not ended, connected or not.
func (s *Store) current() (*link, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, metadata.ErrClosed
	}
	if s.link == nil || s.link.ended() {
		l, err := s.newLink()
		if err != nil {
			return nil, fmt.Errorf("%w: %w", metadata.ErrUnavailable, err)
		}
		s.link = l
		s.tasks.Go(l.run)
	}
	return s.link, nil
}

// Session implements metadata.Store.
func (s *Store) Session(ctx context.Context) (metadata.Session, error) {
	ctx, cancel, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer cancel()
	l, err := s.live(ctx)
	if err != nil {
		return nil, err
	}
	return l, nil
}

// read runs a read on a live session until it succeeds, fails for good, or time is up.
func (s *Store) read(ctx context.Context, fn func(context.Context, *link) error) error {
	ctx, cancel, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	for pause := newBackoff(); ; {
		l, err := s.live(ctx)
		if err != nil {
			return err
		}
		_, err = await(ctx, s, func() (struct{}, error) { return struct{}{}, fn(ctx, l) })
		switch {
		case err == nil:
			return nil
		case !transient(err):
			return wrapFinal(err)
		}
		l.noticed(err)
		if !pause.wait(ctx) {
			return s.endOfTime(ctx, metadata.ErrUnavailable, err)
		}
	}
}

// await runs a blocking call of the client library beside ctx: the library's calls end with their answer or their connection.
func await[T any](ctx context.Context, s *Store, fn func() (T, error)) (T, error) {
	type answer struct {
		v   T
		err error
	}
	ch := make(chan answer, 1)
	var none T
	if !s.task(func() { v, err := fn(); ch <- answer{v, err} }) {
		return none, metadata.ErrClosed
	}
	select {
	case a := <-ch:
		return a.v, a.err
	case <-ctx.Done():
		return none, &abandonedError{ctx.Err()}
	}
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
	closed, l := s.closed, s.link
	s.closed = true
	s.mu.Unlock()
	if closed {
		return nil
	}
	s.cancel()
	if l != nil {
		l.end("the store was closed")
	}
	s.tasks.Wait()
	return nil
}
