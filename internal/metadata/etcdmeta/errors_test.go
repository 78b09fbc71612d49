package etcdmeta

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/binderylog/bindery/internal/metadata"
)

// TestOutcomeOfAFailedWrite states for each answer whether the write surely did not happen. Everything that is not marked
// as such has an unknown outcome, once it was sent.
func TestOutcomeOfAFailedWrite(t *testing.T) {
	for name, tc := range map[string]struct {
		err           error
		final, unseen bool
		is            error
	}{
		"lease not found":     {rpctypes.ErrLeaseNotFound, true, false, metadata.ErrSessionLost},
		"no space":            {rpctypes.ErrNoSpace, true, false, metadata.ErrUnavailable},
		"too large":           {rpctypes.ErrRequestTooLarge, true, false, metadata.ErrTooLarge},
		"message too large":   {status.Error(codes.ResourceExhausted, "trying to send message larger than max"), true, false, metadata.ErrTooLarge},
		"permission":          {rpctypes.ErrPermissionDenied, true, false, nil},
		"bad token":           {rpctypes.ErrInvalidAuthToken, true, false, nil},
		"duplicate key":       {rpctypes.ErrDuplicateKey, true, false, nil},
		"compacted":           {rpctypes.ErrCompacted, true, false, nil},
		"too many requests":   {rpctypes.ErrTooManyRequests, false, true, nil},
		"timeout":             {rpctypes.ErrTimeout, false, false, nil},
		"leader failed":       {rpctypes.ErrTimeoutDueToLeaderFail, false, false, nil},
		"connection lost":     {rpctypes.ErrTimeoutDueToConnectionLost, false, false, nil},
		"leader changed":      {rpctypes.ErrLeaderChanged, false, false, nil},
		"stopped":             {rpctypes.ErrStopped, false, false, nil},
		"no leader":           {rpctypes.ErrNoLeader, false, false, nil},
		"transport closing":   {status.Error(codes.Unavailable, "transport is closing"), false, false, nil},
		"reset":               {status.Error(codes.Unavailable, "error reading from server: read tcp: connection reset by peer"), false, false, nil},
		"internal":            {status.Error(codes.Internal, "stream terminated by RST_STREAM"), false, false, nil},
		"unknown code":        {status.Error(codes.Unknown, "raft proposal dropped"), false, false, nil},
		"cancelled":           {context.Canceled, false, false, nil},
		"deadline":            {context.DeadlineExceeded, false, false, nil},
		"deadline of grpc":    {status.Error(codes.DeadlineExceeded, "context deadline exceeded"), false, false, nil},
		"anything else":       {errors.New("what"), false, false, nil},
		"data loss in etcd":   {rpctypes.ErrCorrupt, false, false, nil},
		"not enough capacity": {status.Error(codes.Aborted, "x"), false, false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tc.final, final(tc.err))
			require.Equal(t, tc.unseen, refusedUnseen(tc.err))
			if tc.is != nil {
				require.ErrorIs(t, wrapFinal(tc.err), tc.is)
			}
		})
	}
}
