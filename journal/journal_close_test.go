package journal

import (
	"errors"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/vfs/errorfs"
	"github.com/binderylog/bindery/internal/vfs/memfs"
)

// TestCloseEndsReserve: who waits for room when the journal is closed, or fails, hears of it at once; nobody waits for the
// time-out.
func TestCloseEndsReserve(t *testing.T) {
	for _, way := range []string{"close", "failure"} {
		synctest.Test(t, func(t *testing.T) {
			o := smallOptions()
			o.QueueBytes = 100
			sw := errorfs.NewSwitch(errorfs.From(errorfs.Write, 1, syscall.EIO))
			j := mustStart(t, errorfs.Wrap(memfs.New(), sw), "/j", o)
			require.NoError(t, j.Reserve(100, 0))
			errs := make(chan error, 3)
			for range cap(errs) {
				go func() { errs <- j.Reserve(1, time.Hour) }()
			}
			synctest.Wait()
			require.Empty(t, errs)
			began, want := time.Now(), ErrClosed
			if way == "close" {
				require.NoError(t, j.Close())
			} else {
				sw.Set(true)
				want = ErrPoisoned
				_, err := j.Append(1, 0, []byte("x"), nil, Token{})
				require.NoError(t, err)
				j.Commit()
			}
			for range cap(errs) {
				require.ErrorIs(t, <-errs, want)
			}
			require.Zero(t, time.Since(began))
			if err := j.Close(); way == "failure" {
				require.ErrorIs(t, err, syscall.EIO)
			}
		})
	}
}

// TestCloseDuringMaxGroupWait: a group that waits for company goes out at once.
func TestCloseDuringMaxGroupWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := smallOptions()
		o.MaxGroupWait = 20 * time.Millisecond
		mem := memfs.New()
		j := mustStart(t, mem, "/j", o)
		l := newListener()
		appendOne(t, j, 0, 100, l)
		j.Commit()
		synctest.Wait()
		require.Zero(t, l.count())
		began := time.Now()
		require.NoError(t, j.Close())
		require.Zero(t, time.Since(began))
		require.Equal(t, 1, l.count())
		require.NoError(t, l.errs[0])
		got, _ := replayAll(t, mem, "/j", o, 0)
		require.Equal(t, []int{0}, got)
	})
}

// TestCloseWithoutCommit: what was appended is written although nobody has called Commit.
func TestCloseWithoutCommit(t *testing.T) {
	for _, relaxed := range []bool{false, true} {
		o := smallOptions()
		if relaxed {
			o.IO, o.Relaxed = IOBuffered, true
		}
		mem := memfs.New()
		j := mustStart(t, mem, "/j", o)
		l := newListener()
		for i := range 30 { // several groups
			appendOne(t, j, i, 1000, l)
		}
		_, err := j.Append(0, 0, nil, l, Token{A: 30})
		require.NoError(t, err)
		require.NoError(t, j.Close())
		require.Equal(t, 31, l.count(), "Close returns when every sink has heard")
		for _, err := range l.errs {
			require.NoError(t, err)
		}
		got, r := replayAll(t, mem.CrashClone(1, 0), "/j", o, 0)
		require.Equal(t, numbers(0, 30), got)
		require.True(t, r.Whole)
	}
}

// TestCloseWaitsForASegment: groups that wait for a segment's file when Close is called are written, or fail with the
// reason, and Close returns after them.
func TestCloseWaitsForASegment(t *testing.T) {
	for _, fails := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			o := smallOptions()
			hold := make(chan struct{})
			sw := errorfs.NewSwitch(errorfs.Func("a rename that hangs", func(op errorfs.Op) errorfs.Fault {
				if op.Kind != errorfs.Rename {
					return errorfs.Fault{}
				}
				<-hold
				if fails {
					return errorfs.Fault{Err: syscall.EIO}
				}
				return errorfs.Fault{}
			}))
			mem := memfs.New()
			j := mustStart(t, errorfs.Wrap(mem, sw), "/j", o)
			sw.Set(true)
			l := newListener()
			const n = 60
			for i := range n { // five segments
				appendOne(t, j, i, 5000, l)
				j.Commit()
			}
			synctest.Wait()
			require.Positive(t, j.Stats().SegmentWaits)
			closed := make(chan error)
			go func() { closed <- j.Close() }()
			synctest.Wait()
			select {
			case <-closed:
				t.Fatal("closed before its records were written")
			default:
			}
			_, err := j.Append(1, 0, []byte("x"), nil, Token{})
			require.ErrorIs(t, err, ErrClosed)
			close(hold)
			err = <-closed
			require.Equal(t, n, l.count())
			got, r := replayAll(t, mem, "/j", o, 0)
			require.True(t, r.Whole)
			if !fails {
				require.NoError(t, err)
				require.Equal(t, numbers(0, n), got)
				return
			}
			require.ErrorIs(t, err, ErrPoisoned)
			require.ErrorIs(t, err, syscall.EIO)
			acked := 0
			for _, err := range l.errs {
				if err == nil {
					acked++
				}
			}
			require.Less(t, acked, n)
			require.Subset(t, got, numbers(0, acked))
		})
	}
}

// TestCloseAmongAppends: appenders that run into Close hear of each record exactly once, by the error or through the sink,
// and what the sink called good is there.
func TestCloseAmongAppends(t *testing.T) {
	for _, relaxed := range []bool{false, true} {
		o := smallOptions()
		o.QueueBytes = 16 << 10
		if relaxed {
			o.IO, o.Relaxed = IOBuffered, true
		}
		mem := memfs.New()
		j := mustStart(t, mem, "/j", o)
		const appenders = 6
		sinks := make([]*listener, appenders)
		taken := make([]int, appenders)
		started := make(chan struct{}, appenders)
		var wg sync.WaitGroup
		for a := range appenders {
			sinks[a] = newListener()
			wg.Go(func() {
				for i := 0; ; i++ {
					b := body(a*10000+i, 200)
					err := j.Reserve(len(b), waitLong)
					if err == nil {
						_, err = j.Append(1, uint64((a*10000+i)%7), b, sinks[a], Token{A: int64(a*10000 + i)})
					}
					if err != nil {
						if !errors.Is(err, ErrClosed) {
							t.Error(err)
						}
						return
					}
					taken[a]++
					if i%3 == 0 {
						j.Commit()
					}
					if i == 20 {
						started <- struct{}{}
					}
				}
			})
		}
		for range appenders {
			<-started
		}
		require.NoError(t, j.Close())
		wg.Wait()
		require.NoError(t, j.Close())
		there := map[int]bool{}
		got, _ := replayAll(t, mem.CrashClone(1, 0), "/j", o, 0)
		for _, i := range got {
			there[i] = true
		}
		for a, s := range sinks {
			require.Len(t, s.done, taken[a])
			for i, tok := range s.done {
				if s.errs[i] != nil || tok.A != int64(a*10000+i) || !there[int(tok.A)] {
					t.Fatalf("appender %d, record %d: token %d, error %v, on disk %v", a, i, tok.A, s.errs[i], there[int(tok.A)])
				}
			}
		}
	}
}
