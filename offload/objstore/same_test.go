package objstore_test

import (
	"testing"

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
