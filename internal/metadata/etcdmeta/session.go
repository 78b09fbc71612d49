package etcdmeta

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/binderylog/bindery/internal/metadata"
)

// session is a lease that is kept alive in the background.
type session struct {
	lease clientv3.LeaseID
	done  chan struct{}
	end   context.CancelFunc // stops keeping it alive, which closes done
}

// ID implements metadata.Session.
func (s *session) ID() string { return leaseName(s.lease) }

// Done implements metadata.Session.
func (s *session) Done() <-chan struct{} { return s.done }

// alive reports whether the session has not ended as far as is known.
func (s *session) alive() bool {
	select {
	case <-s.done:
		return false
	default:
		return true
	}
}

// Session implements metadata.Store.
func (s *Store) Session(ctx context.Context) (metadata.Session, error) {
	select {
	case s.sessionSlot <- struct{}{}:
		defer func() { <-s.sessionSlot }()
	case <-ctx.Done():
		return nil, s.endOfTime(ctx, metadata.ErrUnavailable, ctx.Err())
	case <-s.stop.Done():
		return nil, metadata.ErrClosed
	}
	if s.session != nil && s.session.alive() {
		return s.session, nil
	}
	var lease *clientv3.LeaseGrantResponse
	// A lease whose grant was not heard of has no keys and expires by itself, so asking again is harmless.
	var asked time.Time
	err := s.read(ctx, func(ctx context.Context) (err error) {
		asked = time.Now()
		lease, err = s.client.Grant(ctx, int64(s.o.SessionTTL/time.Second))
		return err
	})
	if err != nil {
		return nil, err
	}
	kctx, cancel := context.WithCancel(s.stop)
	n := &session{lease: lease.ID, done: make(chan struct{}), end: cancel}
	beats, err := s.client.KeepAlive(kctx, lease.ID)
	if err != nil {
		cancel()
		return nil, s.endOfTime(ctx, metadata.ErrUnavailable, err)
	}
	if !s.task(func() { defer cancel(); s.keep(n, beats, asked.Add(life(lease.TTL))) }) {
		cancel()
		return nil, metadata.ErrClosed
	}
	s.session = n
	return n, nil
}

// life is a lease's, in what etcd counts.
func life(ttl int64) time.Duration { return time.Duration(ttl) * time.Second }

// keep ends the session when its keep-alive does, or its life without an answer. etcd's client renews three times per life, reconnects by
// itself, and closes the channel when the lease is unknown to etcd or has expired by its own clock; but until the first answer that clock
// is the time to connect, which may be far longer than the life.
func (s *Store) keep(n *session, beats <-chan *clientv3.LeaseKeepAliveResponse, until time.Time) {
	defer close(n.done)
	expired := time.NewTimer(time.Until(until))
	defer expired.Stop()
	for alive := true; alive; {
		select {
		case b, ok := <-beats:
			if alive = ok; ok {
				expired.Reset(life(b.TTL))
			}
		case <-expired.C:
			alive = len(beats) > 0 // this process may have stood still, with an answer waiting
		}
	}
	if s.stop.Err() == nil {
		s.o.Logger.Warn("metadata session lost: its ephemeral keys are gone", "session", n.ID(), "ttl", s.o.SessionTTL)
	}
}

// endSession revokes the lease, so that its keys go at once instead of after its life. Best effort: etcd may be down.
func (s *Store) endSession() {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	select {
	case s.sessionSlot <- struct{}{}:
	case <-ctx.Done():
		return // a grant that does not come back; there is nothing to revoke
	}
	n := s.session
	s.session = nil
	<-s.sessionSlot
	if n == nil || !n.alive() {
		return
	}
	if _, err := s.client.Revoke(ctx, n.lease); err != nil {
		s.o.Logger.Warn("metadata session not ended cleanly: its keys stay until it expires", "session", n.ID(), "error", err)
	}
}
