package mem_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/binderylog/bindery/offload/objstore"
	"github.com/binderylog/bindery/offload/objstore/mem"
	"github.com/binderylog/bindery/offload/objstore/objstoretest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestStatement39Mem(t *testing.T) {
	objstoretest.Run(t, func(*testing.T) objstore.Store { return mem.New() })
}

func TestSurgery(t *testing.T) {
	ctx := context.Background()
	s := mem.New()
	_, err := s.Put(ctx, "a/b", objstore.NewBody([]byte("hello")), objstore.PutOptions{})
	require.NoError(t, err)
	require.Equal(t, []string{"a/b"}, s.Keys())
	require.EqualValues(t, 5, s.Bytes())

	require.True(t, s.Damage("a/b", func(b []byte) []byte { b[0] ^= 1; return b[:4] }))
	require.False(t, s.Damage("a/c", func(b []byte) []byte { return b }))
	got := make([]byte, 4)
	info, err := s.GetRange(ctx, "a/b", 0, got)
	require.NoError(t, err)
	require.Equal(t, "iell", string(got))
	require.EqualValues(t, 4, info.Size)
	require.Equal(t, objstore.CRC32C([]byte("hello")), info.CRC32C, "the store does not know")

	id, err := s.CreateUpload(ctx, "a/u", objstore.UploadOptions{})
	require.NoError(t, err)
	require.Len(t, s.Uploads(), 1)
	s.ExpireUploads()
	_, err = s.PutPart(ctx, "a/u", id, 1, objstore.NewBody([]byte("x")))
	require.Equal(t, objstore.KindNoUpload, objstore.KindOf(err))
	s.Wipe()
	require.Empty(t, s.Keys())
	_, err = s.Head(ctx, "a/b")
	require.True(t, objstore.IsNotFound(err))
}
