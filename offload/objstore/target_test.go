package objstore_test

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/offload/objstore"
	"github.com/binderylog/bindery/offload/objstore/faulty"
	"github.com/binderylog/bindery/offload/objstore/mem"
	"github.com/binderylog/bindery/offload/objstore/objstoretest"
)

// target returns a target before a store with faults.
func target(inject faulty.Injector, o objstore.TargetOptions) (*objstore.Target, *faulty.Store, *mem.Store) {
	m := mem.New()
	f := faulty.Wrap(m, inject)
	if o.ID == "" {
		o.ID = "t1"
	}
	return objstore.NewTarget(f, o), f, m
}

func put(ctx context.Context, s objstore.Store, key, text string) error {
	_, err := s.Put(ctx, key, objstore.NewBody([]byte(text)), objstore.PutOptions{})
	return err
}

func TestStatement39Target(t *testing.T) {
	t.Run("target", func(t *testing.T) {
		objstoretest.Run(t, func(*testing.T) objstore.Store {
			s, _, _ := target(nil, objstore.TargetOptions{})
			return s
		})
	})
	t.Run("prefix", func(t *testing.T) {
		objstoretest.Run(t, func(*testing.T) objstore.Store {
			m := mem.New()
			require.NoError(t, put(context.Background(), m, "a/bystander", "x"))
			s, err := objstore.WithPrefix(m, "/a/b/")
			require.NoError(t, err)
			return s
		})
	})
}

func TestPrefixIsCheckedAndStaysInside(t *testing.T) {
	m := mem.New()
	_, err := objstore.WithPrefix(m, "a//b")
	require.ErrorContains(t, err, "empty segment")
	s, err := objstore.WithPrefix(m, "")
	require.NoError(t, err)
	require.Same(t, m, s)
	s, err = objstore.WithPrefix(m, "p")
	require.NoError(t, err)
	require.NoError(t, put(context.Background(), s, "k", "x"))
	require.Equal(t, []string{"p/k"}, m.Keys())
}

func TestTransientErrorsAreTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		s, f, _ := target(faulty.Between(1, 5, faulty.Fail(objstore.KindThrottled)), objstore.TargetOptions{})
		require.NoError(t, put(ctx, s, "a", "x"))
		require.Equal(t, 6, f.Count())
		require.EqualValues(t, 5, s.Requests(objstore.OpPut, objstore.KindThrottled))

		f.Set(faulty.Always(faulty.Fail(objstore.KindThrottled)))
		before := f.Count()
		err := put(ctx, s, "b", "x")
		require.Equal(t, objstore.KindThrottled, objstore.KindOf(err))
		require.ErrorContains(t, err, "target t1: put b: throttled")
		require.Equal(t, 6, f.Count()-before, "six tries and no more")
	})
}

func TestWhatCanNotSucceedIsNotTriedAgain(t *testing.T) {
	ctx := context.Background()
	for _, k := range []objstore.Kind{objstore.KindNotFound, objstore.KindDenied, objstore.KindCredentials, objstore.KindBucket, objstore.KindRegion, objstore.KindScheme,
		objstore.KindFull, objstore.KindMisuse, objstore.KindExists, objstore.KindRange, objstore.KindSize, objstore.KindForeign} {
		s, f, _ := target(faulty.Always(faulty.Fail(k)), objstore.TargetOptions{})
		_, err := s.Head(ctx, "a")
		require.Equal(t, k, objstore.KindOf(err))
		require.Equal(t, 1, f.Count(), "%s", k)
	}
	s, f, _ := target(faulty.Always(faulty.Fail(objstore.KindChecksum)), objstore.TargetOptions{RetryBase: time.Microsecond})
	require.Equal(t, objstore.KindChecksum, objstore.KindOf(put(ctx, s, "a", "x")))
	require.Equal(t, 3, f.Count(), "twice again, from the same buffer")
}

// TestStatement32Kinds: what a read makes of each kind is in the kind alone.
func TestStatement32Kinds(t *testing.T) {
	for k, want := range map[objstore.Kind][3]bool{ // retriable, gone, setup
		objstore.KindNotFound: {false, true, false}, objstore.KindRange: {false, true, false}, objstore.KindNoUpload: {false, true, false},
		objstore.KindThrottled: {true, false, false}, objstore.KindTransient: {true, false, false}, objstore.KindUnreachable: {true, false, false},
		objstore.KindCircuitOpen: {true, false, false}, objstore.KindDenied: {false, false, true}, objstore.KindCredentials: {false, false, true},
		objstore.KindSize: {false, false, false}, objstore.KindCanceled: {false, false, false},
	} {
		require.Equal(t, want, [3]bool{k.Retriable(), k.Gone(), k.Setup()}, "%s", k)
	}
}

func TestTheRetryBudgetIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, f, _ := target(faulty.On(objstore.OpPut, faulty.Always(faulty.Fail(objstore.KindThrottled))), objstore.TargetOptions{})
		for i := range 200 {
			_ = put(context.Background(), s, fmt.Sprint("k", i), "x")
		}
		// 20 saved, and each request earns a fifth of one.
		require.InDelta(t, 200+20+40, f.Count(), 1, "a target in trouble gets little more than it would when well")
	})
}

func TestStatement41CircuitOpensForOneTargetAndComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		bad, f, _ := target(nil, objstore.TargetOptions{ID: "bad"})
		good, _, _ := target(nil, objstore.TargetOptions{ID: "good"})
		require.NoError(t, put(ctx, bad, "a", "x"))
		require.NoError(t, put(ctx, good, "a", "x"))
		f.Set(faulty.Always(faulty.Fail(objstore.KindCredentials))) // revoked
		for range 5 {
			_, err := bad.GetRange(ctx, "a", 0, make([]byte, 1))
			require.Equal(t, objstore.KindCredentials, objstore.KindOf(err))
		}
		require.True(t, bad.CircuitOpen())
		require.False(t, good.CircuitOpen())
		sent := f.Count()
		start := time.Now()
		_, err := bad.GetRange(ctx, "a", 0, make([]byte, 1))
		require.Equal(t, objstore.KindCircuitOpen, objstore.KindOf(err))
		require.ErrorContains(t, err, "the last was get a: credentials", "why it is open")
		require.Zero(t, time.Since(start), "a read does not wait")
		require.Equal(t, sent, f.Count(), "and nothing is sent")
		_, err = good.GetRange(ctx, "a", 0, make([]byte, 1))
		require.NoError(t, err)

		time.Sleep(10 * time.Second)
		_, err = bad.GetRange(ctx, "a", 0, make([]byte, 1))
		require.Equal(t, objstore.KindCredentials, objstore.KindOf(err), "one probe goes out")
		_, err = bad.GetRange(ctx, "a", 0, make([]byte, 1))
		require.Equal(t, objstore.KindCircuitOpen, objstore.KindOf(err))
		require.Equal(t, sent+1, f.Count())
		f.Set(nil)
		time.Sleep(10 * time.Second)
		for range 3 {
			_, err = bad.GetRange(ctx, "a", 0, make([]byte, 1))
			require.NoError(t, err)
		}
		require.False(t, bad.CircuitOpen())
	})
}

func TestHalfOfTwentyOpensTheCircuit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		s, _, _ := target(func(faulty.Call) faulty.Fault {
			if n++; n%2 == 0 {
				return faulty.Fail(objstore.KindUnreachable)
			}
			return faulty.Fault{}
		}, objstore.TargetOptions{RetryMax: 1})
		for i := range 20 {
			require.False(t, s.CircuitOpen(), "request %d", i)
			_, _ = s.List(context.Background(), "", "", 1)
		}
		require.True(t, s.CircuitOpen())
	})
}

func TestAbsenceAndSlowdownsDoNotOpenTheCircuit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, f, _ := target(nil, objstore.TargetOptions{})
		for range 30 {
			_, err := s.Head(context.Background(), "absent")
			require.True(t, objstore.IsNotFound(err))
		}
		f.Set(faulty.Always(faulty.Fail(objstore.KindThrottled)))
		for range 10 {
			_, _ = s.Head(context.Background(), "absent")
		}
		f.Set(faulty.Always(faulty.Hang()))
		for range 10 { // the caller gives up: a hedge that lost says nothing about the target
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			_, err := s.Head(ctx, "absent")
			cancel()
			require.Equal(t, objstore.KindCanceled, objstore.KindOf(err))
		}
		require.False(t, s.CircuitOpen())
	})
}

func TestAHangingStoreIsGivenUpInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		s, f, _ := target(faulty.Always(faulty.Hang()), objstore.TargetOptions{})
		start := time.Now()
		_, err := s.GetRange(ctx, "a", 0, make([]byte, 1))
		require.Equal(t, 30*time.Second, time.Since(start))
		require.Equal(t, objstore.KindTransient, objstore.KindOf(err))
		require.ErrorContains(t, err, "no answer within 30s")
		require.Equal(t, 1, f.Count())
		err = put(ctx, s, "a", "x")
		require.Equal(t, 5*time.Minute+30*time.Second, time.Since(start))
		require.True(t, objstore.Unclear(err), "it may have happened")
	})
}

func TestOnceUnclearAlwaysUnclear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		s, f, m := target(faulty.All(faulty.Nth(1, faulty.LostReply()), faulty.From(2, faulty.Fail(objstore.KindThrottled))), objstore.TargetOptions{})
		err := put(ctx, s, "a", "x")
		require.Equal(t, objstore.KindThrottled, objstore.KindOf(err))
		require.True(t, objstore.Unclear(err), "the first try was done")
		require.Equal(t, []string{"a"}, m.Keys())

		f.Set(faulty.Nth(1, faulty.LostReply()))
		_, err = s.Put(ctx, "b", objstore.NewBody([]byte("x")), objstore.PutOptions{IfAbsent: true})
		require.Equal(t, objstore.KindExists, objstore.KindOf(err), "told of its own first try")
		require.True(t, objstore.Unclear(err))
	})
}

func upload(t *testing.T, s objstore.Store, key string, data []byte) (id string, parts []objstore.Part) {
	t.Helper()
	id, err := s.CreateUpload(context.Background(), key, objstore.UploadOptions{})
	require.NoError(t, err)
	p, err := s.PutPart(context.Background(), key, id, 1, objstore.NewBody(data))
	require.NoError(t, err)
	return id, []objstore.Part{p}
}

func TestALostReplyToACompleteIsLookedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		s, f, m := target(nil, objstore.TargetOptions{})
		id, parts := upload(t, s, "a", []byte("body"))
		f.Set(faulty.On(objstore.OpComplete, faulty.Nth(1, faulty.LostReply())))
		info, err := s.CompleteUpload(ctx, "a", id, parts)
		require.NoError(t, err)
		require.EqualValues(t, 4, info.Size)
		require.Equal(t, 1, f.Count(objstore.OpComplete))

		id, parts = upload(t, s, "b", []byte("body"))
		f.Set(faulty.On(objstore.OpComplete, faulty.Nth(1, faulty.Cut())))
		_, err = s.CompleteUpload(ctx, "b", id, parts)
		require.NoError(t, err)
		require.Equal(t, 3, f.Count(objstore.OpComplete), "it was not done, so it was asked for again")

		id, parts = upload(t, s, "c", []byte("body"))
		f.Set(faulty.On(objstore.OpComplete, faulty.Nth(1, faulty.Cut())))
		m.ExpireUploads()
		_, err = s.CompleteUpload(ctx, "c", id, parts)
		require.Equal(t, objstore.KindNoUpload, objstore.KindOf(err), "gone and nothing there: a new attempt")
		require.Empty(t, m.Uploads())
	})
}

func TestThrottlingHalvesWhatIsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		s, f, _ := target(faulty.Nth(1, faulty.Fail(objstore.KindThrottled)), objstore.TargetOptions{Writes: 8, Reads: 8})
		require.NoError(t, put(ctx, s, "a", "x"))
		require.Contains(t, text(s), `bindery_offload_target_concurrency{target="t1",kind="write"} 4`)
		require.Contains(t, text(s), `bindery_offload_target_concurrency{target="t1",kind="read"} 8`)
		f.Set(faulty.Always(faulty.Delay(time.Second)))
		var wg sync.WaitGroup
		for range 12 {
			wg.Go(func() { _ = put(ctx, s, "a", "x") })
		}
		synctest.Wait()
		require.Contains(t, text(s), `bindery_offload_target_in_flight{target="t1",kind="write"} 4`)
		wg.Wait()
		f.Set(nil)
		for range 6 {
			time.Sleep(10 * time.Second)
			require.NoError(t, put(ctx, s, "a", "x"))
		}
		require.Contains(t, text(s), `bindery_offload_target_concurrency{target="t1",kind="write"} 8`, "one more per ten seconds, up to the most")
	})
}

func TestWhoWaitsForAPlaceCanGiveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, f, _ := target(faulty.Always(faulty.Delay(time.Minute)), objstore.TargetOptions{Writes: 1})
		var wg sync.WaitGroup
		wg.Go(func() { _ = put(context.Background(), s, "a", "x") })
		synctest.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		err := put(ctx, s, "b", "x")
		require.Equal(t, objstore.KindCanceled, objstore.KindOf(err))
		require.False(t, objstore.Unclear(err), "it was never sent")
		wg.Wait()
		require.Equal(t, 1, f.Count())
		require.NoError(t, put(context.Background(), s, "c", "x"), "the place is free again")
	})
}

func text(s *objstore.Target) string {
	var b bytes.Buffer
	s.WritePrometheus(&b)
	return b.String()
}

func TestMetricsCountRequestsAndBytes(t *testing.T) {
	ctx := context.Background()
	s, _, _ := target(faulty.On(objstore.OpPut, faulty.Nth(1, faulty.LostReply())), objstore.TargetOptions{RetryBase: time.Microsecond})
	require.NoError(t, put(ctx, s, "a", "12345"))
	_, err := s.GetRange(ctx, "a", 1, make([]byte, 3))
	require.NoError(t, err)
	_, err = s.Head(ctx, "b")
	require.Error(t, err)
	sent, received := s.Bytes()
	require.EqualValues(t, 10, sent, "twice")
	require.EqualValues(t, 3, received)
	out := text(s)
	for _, line := range []string{
		`bindery_offload_requests_total{target="t1",op="put",class="transient"} 1`,
		`bindery_offload_requests_total{target="t1",op="put",class="ok"} 1`,
		`bindery_offload_requests_total{target="t1",op="head",class="not_found"} 1`,
		`bindery_offload_sent_bytes_total{target="t1"} 10`,
		`bindery_offload_received_bytes_total{target="t1"} 3`,
		`bindery_offload_retries_total{target="t1"} 1`,
		`bindery_offload_circuit_open{target="t1"} 0`,
		`bindery_offload_get_seconds_count{target="t1"} 1`,
		`bindery_offload_put_seconds_count{target="t1"} 1`,
	} {
		require.Contains(t, out, line+"\n")
	}
}

func TestCheckTarget(t *testing.T) {
	ctx := context.Background()
	m := mem.New()
	report, err := objstore.CheckTarget(ctx, m)
	require.NoError(t, err)
	require.Equal(t, m.Capabilities(), report.Capabilities)
	require.Empty(t, report.Warnings)
	require.Len(t, report.Steps, 11)
	require.Empty(t, m.Keys(), "nothing is left")
	require.Empty(t, m.Uploads())
}

func TestCheckOfATargetKeepsWhatItFound(t *testing.T) {
	s, f, _ := target(nil, objstore.TargetOptions{ID: "t7"})
	weak := mem.New().Capabilities()
	weak.Conditional, weak.StoredCRC = false, false
	s.SetCapabilities(weak)
	_, err := s.Check(context.Background())
	require.NoError(t, err)
	require.Equal(t, mem.New().Capabilities(), s.Capabilities())
	f.Set(faulty.Always(faulty.Fail(objstore.KindTransient)))
	before := f.Count()
	_, err = s.Check(context.Background())
	require.ErrorContains(t, err, "target t7: check put: put check/")
	require.Equal(t, 1+1, f.Count()-before, "one try, and one to clean up")
}

// TestCheckTargetFails at each request in turn: the error has the kind of the fault, and nothing is left behind.
func TestCheckTargetFails(t *testing.T) {
	ctx := context.Background()
	for n := 1; ; n++ {
		m := mem.New()
		f := faulty.Wrap(m, faulty.Nth(n, faulty.Fail(objstore.KindDenied)))
		_, err := objstore.CheckTarget(ctx, f)
		if f.Injected() == 0 {
			require.NoError(t, err)
			require.Greater(t, n, 15)
			return
		}
		if err != nil {
			require.Equal(t, objstore.KindDenied, objstore.KindOf(err), "request %d: %v", n, err)
		}
		require.Empty(t, m.Keys(), "request %d", n)
		require.Empty(t, m.Uploads(), "request %d", n)
	}
}

func TestCheckTargetWithACredentialThatMayNotDelete(t *testing.T) {
	m := mem.New()
	report, err := objstore.CheckTarget(context.Background(), faulty.Wrap(m, faulty.On(objstore.OpDelete, faulty.Always(faulty.Fail(objstore.KindDenied)))))
	require.NoError(t, err, "a worker that only offloads needs none")
	require.Len(t, report.Warnings, 1)
	require.Contains(t, report.Warnings[0], "a janitor needs one that may")
	require.Len(t, m.Keys(), 2)
}

func TestCheckTargetFindsLies(t *testing.T) {
	ctx := context.Background()
	for name, in := range map[string]faulty.Injector{
		"size":  faulty.On(objstore.OpHead, faulty.Always(faulty.WrongSize(-1))),
		"bytes": faulty.On(objstore.OpGet, faulty.Always(faulty.Flip(77))),
	} {
		_, err := objstore.CheckTarget(ctx, faulty.Wrap(mem.New(), in))
		require.Equal(t, objstore.KindSize, objstore.KindOf(err), "%s: %v", name, err)
		require.ErrorContains(t, err, "does not keep what it is given", name)
	}
}
