package zkmeta

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/binderylog/bindery/internal/metadata"
)

// errEnded says that a session has ended.
var errEnded = errors.New("the session has ended")

// abandonedError is what remains of a call whose context ended before its answer came.
type abandonedError struct{ cause error }

// Error implements error.
func (e *abandonedError) Error() string { return "no answer in time: " + e.cause.Error() }

// Unwrap returns the context's error.
func (e *abandonedError) Unwrap() error { return e.cause }

// refusals are the answers of a server that looked at a request and did not carry it out.
var refusals = []error{
	zk.ErrNoNode, zk.ErrNodeExists, zk.ErrBadVersion, zk.ErrNotEmpty, zk.ErrNoChildrenForEphemerals, zk.ErrNoAuth,
	zk.ErrInvalidACL, zk.ErrAuthFailed, zk.ErrBadArguments, zk.ErrInvalidPath, zk.ErrInvalidFlags, zk.ErrShortBuffer,
	zk.ErrAPIError,
}

func refused(err error) bool {
	for _, r := range refusals {
		if errors.Is(err, r) {
			return true
		}
	}
	return false
}

// transient reports whether a call failed because of the connection or the session, not because of what it asked for.
func transient(err error) bool {
	var conflict *metadata.ConflictError
	return !refused(err) && !errors.As(err, &conflict) && !errors.Is(err, metadata.ErrClosed) && !errors.Is(err, errNothingToDelete)
}

// unsent reports whether a request was surely not carried out: it never left, or a server turned it away for its session.
func unsent(err error) bool {
	return errors.Is(err, zk.ErrNoServer) || errors.Is(err, zk.ErrSessionExpired) || errors.Is(err, zk.ErrSessionMoved) || errors.Is(err, errNotSent)
}

// errNotSent marks an attempt that failed before its transaction was sent.
var errNotSent = errors.New("not sent")

// wrapFinal names a refusal in this package's terms.
func wrapFinal(err error) error {
	switch {
	case errors.Is(err, zk.ErrShortBuffer):
		return fmt.Errorf("%w: %w", metadata.ErrTooLarge, err)
	case errors.Is(err, zk.ErrNotEmpty):
		return fmt.Errorf("%w: %w", metadata.ErrNotEmpty, err)
	case errors.Is(err, zk.ErrInvalidPath):
		return fmt.Errorf("%w: %w", metadata.ErrBadTxn, err)
	case errors.Is(err, zk.ErrNoAuth), errors.Is(err, zk.ErrAuthFailed):
		return fmt.Errorf("zookeeper denies access (check user and password, and the node's ACL): %w", err)
	case refused(err):
		return fmt.Errorf("zookeeper refused the request: %w", err)
	}
	return err
}

// backoff spaces retries: 20 ms doubling to 1 s, with jitter.
type backoff struct{ next time.Duration }

func newBackoff() *backoff { return &backoff{next: 20 * time.Millisecond} }

// wait sleeps; false means that ctx ended.
func (b *backoff) wait(ctx context.Context) bool {
	d := b.next/2 + rand.N(b.next/2+1)
	b.next = min(2*b.next, time.Second)
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
