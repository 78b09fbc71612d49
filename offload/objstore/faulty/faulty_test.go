package faulty_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/binderylog/bindery/offload/objstore"
	"github.com/binderylog/bindery/offload/objstore/faulty"
	"github.com/binderylog/bindery/offload/objstore/mem"
	"github.com/binderylog/bindery/offload/objstore/objstoretest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestStatement39Faulty(t *testing.T) {
	objstoretest.Run(t, func(*testing.T) objstore.Store { return faulty.Wrap(mem.New(), nil) })
}

func put(s objstore.Store, key string) error {
	_, err := s.Put(context.Background(), key, objstore.NewBody([]byte("body")), objstore.PutOptions{})
	return err
}

func TestFaults(t *testing.T) {
	ctx := context.Background()
	for _, c := range []struct {
		name    string
		fault   faulty.Fault
		kind    objstore.Kind
		unclear bool
		stored  bool
	}{
		{"fail", faulty.Fail(objstore.KindThrottled), objstore.KindThrottled, false, false},
		{"fail unclear", faulty.Fail(objstore.KindTransient), objstore.KindTransient, true, false},
		{"lost", faulty.LostReply(), objstore.KindTransient, true, true},
		{"cut", faulty.Cut(), objstore.KindTransient, true, false},
		{"late", faulty.Late(), objstore.KindTransient, true, false},
		{"flip", faulty.Flip(3), objstore.KindChecksum, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := mem.New()
			s := faulty.Wrap(m, faulty.On(objstore.OpPut, faulty.Nth(2, c.fault)))
			require.NoError(t, put(s, "a"))
			err := put(s, "b")
			require.Equal(t, c.kind, objstore.KindOf(err), "%v", err)
			require.Equal(t, c.unclear, objstore.Unclear(err))
			_, err = m.Head(ctx, "b")
			require.Equal(t, c.stored, err == nil)
			if c.name == "late" {
				require.Equal(t, 1, s.Release())
				_, err = m.Head(ctx, "b")
				require.NoError(t, err)
			}
			require.NoError(t, put(s, "c"))
			require.Equal(t, 1, s.Injected())
			require.Equal(t, 3, s.Count(objstore.OpPut))
			require.Equal(t, 3, s.Count())
			require.Equal(t, faulty.Call{N: 2, Op: objstore.OpPut, Key: "b", Len: 4}, s.Calls()[1])
		})
	}
}

func TestReadsAreDamagedOnTheWay(t *testing.T) {
	ctx := context.Background()
	s := faulty.Wrap(mem.New(), nil)
	require.NoError(t, put(s, "a"))
	s.Set(faulty.OnKey("a", faulty.All(faulty.On(objstore.OpGet, faulty.Always(faulty.Flip(1))), faulty.On(objstore.OpHead, faulty.Always(faulty.WrongSize(-1))))))
	got := make([]byte, 4)
	_, err := s.GetRange(ctx, "a", 0, got)
	require.NoError(t, err)
	require.Equal(t, "`ody", string(got))
	info, err := s.Head(ctx, "a")
	require.NoError(t, err)
	require.EqualValues(t, 3, info.Size)
}

func TestWhatHangsEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			fault  faulty.Fault
			stored bool
		}{"hang": {faulty.Hang(), false}, "stall": {faulty.Stall(), true}, "delay": {faulty.Delay(time.Hour), false}} {
			m := mem.New()
			s := faulty.Wrap(m, faulty.Always(c.fault))
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			_, err := s.Put(ctx, "a", objstore.NewBody([]byte("b")), objstore.PutOptions{})
			cancel()
			require.Equal(t, objstore.KindCanceled, objstore.KindOf(err), name)
			require.True(t, objstore.Unclear(err), name)
			require.Equal(t, c.stored, len(m.Keys()) == 1, name)
		}
	})
}

func TestRateReplays(t *testing.T) {
	run := func() (failed []int) {
		s := faulty.Wrap(mem.New(), faulty.Rate(7, 0.2, faulty.Fail(objstore.KindThrottled)))
		for i := range 50 {
			if put(s, "a") != nil {
				failed = append(failed, i)
			}
		}
		return failed
	}
	first := run()
	require.NotEmpty(t, first)
	require.Less(t, len(first), 30)
	require.Equal(t, first, run())
}
