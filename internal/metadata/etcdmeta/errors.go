package etcdmeta

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/binderylog/bindery/internal/metadata"
)

// codeOf returns the gRPC code behind an error of etcd's client, which comes in three wrappings.
func codeOf(err error) codes.Code {
	var e rpctypes.EtcdError
	if errors.As(err, &e) {
		return e.Code()
	}
	return status.Code(err)
}

// final reports whether etcd looked at a request and refused it in a way that trying again does not change. Nothing was
// written.
func final(err error) bool {
	switch codeOf(err) {
	case codes.InvalidArgument, codes.NotFound, codes.FailedPrecondition, codes.PermissionDenied, codes.Unauthenticated,
		codes.OutOfRange, codes.Unimplemented:
		return true
	case codes.ResourceExhausted:
		return !errors.Is(err, rpctypes.ErrTooManyRequests) && !strings.Contains(err.Error(), "too many requests")
	}
	return false
}

// wrapFinal names a final refusal in this package's terms.
func wrapFinal(err error) error {
	msg := err.Error()
	switch {
	case errors.Is(err, rpctypes.ErrLeaseNotFound), strings.Contains(msg, "requested lease not found"):
		return fmt.Errorf("%w: %w", metadata.ErrSessionLost, err)
	case strings.Contains(msg, "database space exceeded"):
		return fmt.Errorf("%w: etcd has reached its space quota (compact and defragment it, or raise --quota-backend-bytes): %w",
			metadata.ErrUnavailable, err)
	case strings.Contains(msg, "request is too large"), codeOf(err) == codes.ResourceExhausted:
		return fmt.Errorf("%w: %w", metadata.ErrTooLarge, err)
	}
	return fmt.Errorf("etcd refused the request: %w", err)
}

// refusedUnseen reports whether a member refused a write before it proposed it to the others.
func refusedUnseen(err error) bool {
	return codeOf(err) == codes.ResourceExhausted && !final(err) // "too many requests"
}

// sentKey is the context key under which a write keeps the *atomic.Bool that noteSent sets.
type sentKey struct{}

// noteSent is a client interceptor that tells a write whether it got a connection to be sent on. Without one, whatever the
// error, etcd has not seen it. With one it may have.
func noteSent(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	sent, ok := ctx.Value(sentKey{}).(*atomic.Bool)
	if !ok {
		return invoke(ctx, method, req, reply, cc, opts...)
	}
	var to peer.Peer // filled in once the call has a stream on a connection
	err := invoke(ctx, method, req, reply, cc, append(opts, grpc.Peer(&to))...)
	if to.Addr != nil || err == nil {
		sent.Store(true)
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
