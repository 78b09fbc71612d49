package protofield

import (
	"errors"
	"io"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/encoding/protowire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// message has one field of each wire type.
func message() []byte {
	b := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), math.MaxUint64)
	b = protowire.AppendString(protowire.AppendTag(b, 2, protowire.BytesType), "word")
	b = protowire.AppendFixed32(protowire.AppendTag(b, 3, protowire.Fixed32Type), 7)
	b = protowire.AppendFixed64(protowire.AppendTag(b, 4, protowire.Fixed64Type), 8)
	b = protowire.AppendTag(b, 5, protowire.StartGroupType)
	b = protowire.AppendVarint(protowire.AppendTag(b, 1, protowire.VarintType), 9)
	return protowire.AppendTag(b, 5, protowire.EndGroupType)
}

func TestEach(t *testing.T) {
	var got []Field
	var raw []byte
	require.NoError(t, Each(message(), func(f Field) error {
		got, raw = append(got, f), append(raw, f.Raw...)
		return nil
	}))
	require.Equal(t, message(), raw, "nothing is left out")
	require.Len(t, got, 5)
	require.True(t, got[0].Is(1))
	require.False(t, got[0].IsBytes(1))
	require.EqualValues(t, -1, got[0].Int64())
	require.EqualValues(t, 255, got[0].AtMost(255))
	require.True(t, got[1].IsBytes(2))
	require.Equal(t, "word", string(got[1].Bytes))
	require.ErrorIs(t, Each(message(), func(Field) error { return io.ErrUnexpectedEOF }), io.ErrUnexpectedEOF)
}

// TestEachOfACutMessage: at every length the fields before the cut are passed, and the cut one is an error that names it.
func TestEachOfACutMessage(t *testing.T) {
	whole := message()
	ends := map[int]bool{0: true}
	at := 0
	require.NoError(t, Each(whole, func(f Field) error { at += len(f.Raw); ends[at] = true; return nil }))
	for n := range whole {
		passed := 0
		err := Each(whole[:n], func(f Field) error { passed += len(f.Raw); return nil })
		require.True(t, ends[passed], "%d bytes", n)
		if ends[n] {
			require.NoError(t, err, "%d bytes", n)
			continue
		}
		require.Regexp(t, "^(field tag|value of field [1-5]): ", err, "%d bytes", n)
	}
}

func FuzzEach(f *testing.F) {
	f.Add(message())
	f.Fuzz(func(t *testing.T, b []byte) {
		n, stop := 0, errors.New("enough")
		err := Each(b, func(f Field) error {
			if string(f.Raw) != string(b[n:n+len(f.Raw)]) || len(f.Raw) == 0 {
				t.Fatal("a field is not what stands there")
			}
			if n += len(f.Raw); n > 1<<10 {
				return stop
			}
			return nil
		})
		if err == nil && n != len(b) {
			t.Fatalf("%d of %d bytes were passed", n, len(b))
		}
	})
}
