package objstore

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestErrorsSayWhatHappenedAndWhatToChange(t *testing.T) {
	cause := errors.New("cause")
	err := fmt.Errorf("upload: %w", &Error{Kind: KindBucket, Target: "t1", Op: OpPut, Key: "a/b", Status: 404, Code: "NoSuchBucket", Hint: "set bucket", Err: cause})
	require.EqualError(t, err, "upload: target t1: put a/b: bucket (404 NoSuchBucket): cause; set bucket")
	require.ErrorIs(t, err, cause)
	require.Equal(t, KindBucket, KindOf(err))
	require.True(t, KindOf(err).Setup())
	require.False(t, Unclear(err))
	require.True(t, Unclear(fmt.Errorf("x: %w", &Error{Kind: KindTransient, MaybeDone: true})))
	require.Equal(t, KindCanceled, KindOf(fmt.Errorf("x: %w", context.Canceled)))
	require.Equal(t, KindUnknown, KindOf(cause))
	require.Equal(t, KindUnknown, KindOf(nil))
	require.True(t, IsNotFound(&Error{Kind: KindNotFound}))
}

func TestEveryKindHasAName(t *testing.T) {
	seen := map[string]bool{}
	for k := range kinds {
		require.NotEmpty(t, k.String())
		require.False(t, seen[k.String()], "%s twice", k)
		seen[k.String()] = true
	}
	require.Equal(t, "unknown", Kind(200).String())
}
