package objstore_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/offload/objstore"
	"github.com/binderylog/bindery/offload/objstore/faulty"
)

func TestSamePlaces(t *testing.T) {
	a, _, m := target(nil, objstore.TargetOptions{ID: "a"})
	again := objstore.NewTarget(m, objstore.TargetOptions{ID: "again"})
	b, _, other := target(nil, objstore.TargetOptions{ID: "b"})
	down, _, _ := target(faulty.Always(faulty.Fail(objstore.KindUnreachable)), objstore.TargetOptions{ID: "down"})
	pairs := objstore.SamePlaces(t.Context(), []*objstore.Target{down, a, b, again})
	require.Len(t, pairs, 1)
	require.ErrorContains(t, pairs[0], "targets a and again are the same place")
	require.Empty(t, m.Keys(), "nothing is left")
	require.Empty(t, other.Keys())
}

// TestASilentStoreEndsTheCheck: one that takes a request and never answers it.
func TestASilentStoreEndsTheCheck(t *testing.T) {
	for _, op := range []objstore.Op{objstore.OpPut, objstore.OpHead, objstore.OpGet, objstore.OpList} {
		synctest.Test(t, func(t *testing.T) {
			s, _, _ := target(faulty.On(op, faulty.Always(faulty.Delay(24*time.Hour))), objstore.TargetOptions{})
			start := time.Now()
			_, err := s.Check(t.Context())
			require.ErrorContains(t, err, "no answer within 30s", op)
			require.Equal(t, objstore.KindUnreachable, objstore.KindOf(err))
			require.Less(t, time.Since(start), 2*time.Minute)
		})
	}
}
