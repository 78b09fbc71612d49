package journal

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/binderylog/bindery/internal/vfs"
	"github.com/binderylog/bindery/internal/vfs/memfs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// smallOptions makes segments and groups small enough for a test to pass through many of them.
func smallOptions() Options {
	return Options{SegmentSize: 64 << 10, MaxGroupBytes: 8 << 10, IO: IODSync}
}

// listener is a sink that remembers what it heard.
type listener struct {
	mu      sync.Mutex
	cond    sync.Cond
	done    []Token
	errs    []error
	flushes int
	pending int // JournalDone calls since the last flush
}

func newListener() *listener {
	l := &listener{}
	l.cond.L = &l.mu
	return l
}

func (l *listener) JournalDone(t Token, err error) {
	l.mu.Lock()
	l.done = append(l.done, t)
	l.errs = append(l.errs, err)
	l.pending++
	l.mu.Unlock()
}

func (l *listener) JournalFlush() {
	l.mu.Lock()
	l.flushes++
	l.pending = 0
	l.cond.Broadcast()
	l.mu.Unlock()
}

// wait blocks until n records were answered and flushed.
func (l *listener) wait(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.done) < n || l.pending > 0 {
		l.cond.Wait()
	}
}

func (l *listener) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.done)
}

// body builds the payload number i: its number, then n bytes that follow from it.
func body(i, n int) []byte {
	b := make([]byte, 8+n)
	binary.BigEndian.PutUint64(b, uint64(i))
	for k := range n {
		b[8+k] = byte(i*31 + k*7)
	}
	return b
}

func bodyNumber(b []byte) int { return int(binary.BigEndian.Uint64(b)) }

// checkBody fails the test unless b is the payload of its number.
func checkBody(t testing.TB, b []byte) int {
	t.Helper()
	require.GreaterOrEqual(t, len(b), 8)
	i := bodyNumber(b)
	require.True(t, bytes.Equal(b, body(i, len(b)-8)), "payload %d is not what was appended", i)
	return i
}

func mustOpen(t testing.TB, fs vfs.FS, dir string, o Options) *Journal {
	t.Helper()
	j, err := Open(fs, dir, o)
	require.NoError(t, err)
	return j
}

func mustStart(t testing.TB, fs vfs.FS, dir string, o Options) *Journal {
	t.Helper()
	j := mustOpen(t, fs, dir, o)
	require.NoError(t, j.Start())
	return j
}

// appendOne appends the payload i without committing it.
func appendOne(t testing.TB, j *Journal, i, n int, s Sink) Position {
	t.Helper()
	b := body(i, n)
	require.NoError(t, j.Reserve(len(b), 10*time.Second))
	p, err := j.Append(1, uint64(i%7), b, s, Token{A: int64(i)})
	require.NoError(t, err)
	return p
}

// replayAll returns the numbers of the payloads from from on.
func replayAll(t testing.TB, fs vfs.FS, dir string, o Options, from Position) ([]int, Replayed) {
	t.Helper()
	j := mustOpen(t, fs, dir, o)
	defer func() { require.NoError(t, j.Close()) }()
	var got []int
	r, err := j.Replay(from, func(r Record) error {
		i := checkBody(t, r.Payload)
		require.Equal(t, uint64(i%7), r.Tag)
		require.Equal(t, uint8(1), r.Kind)
		got = append(got, i)
		return nil
	})
	require.NoError(t, err)
	return got, r
}

func numbers(from, to int) []int {
	var n []int
	for i := from; i < to; i++ {
		n = append(n, i)
	}
	return n
}

func TestAppendedRecordsReplay(t *testing.T) {
	for _, fsName := range []string{"memfs", "os"} {
		for _, io := range []IOMethod{IOAuto, IODSync, IOFdatasync, IORWFDSync, IOBuffered} {
			t.Run(fmt.Sprintf("fs=%s/io=%s", fsName, io), func(t *testing.T) {
				var fs vfs.FS = memfs.New()
				dir := "/j"
				if fsName == "os" {
					fs, dir = vfs.OS(), t.TempDir()
				}
				o := smallOptions()
				o.IO = io
				j := mustStart(t, fs, dir, o)
				l := newListener()
				const n = 500
				var last Position
				for i := range n {
					p := appendOne(t, j, i, i%900, l)
					require.GreaterOrEqual(t, p, last)
					last = p
					if i%7 == 0 {
						j.Commit()
					}
				}
				j.Commit()
				l.wait(n)
				for i, tok := range l.done {
					require.Equal(t, int64(i), tok.A)
					require.NoError(t, l.errs[i])
				}
				require.NoError(t, j.Close())
				got, r := replayAll(t, fs, dir, o, 0)
				require.Equal(t, numbers(0, n), got)
				require.True(t, r.Whole)
				require.Nil(t, r.Cut)
				require.Empty(t, r.Damage)
				require.Equal(t, int64(n), r.Records)
				require.Equal(t, last+2, r.End) // one more group covers the last one
			})
		}
	}
}

const (
	waitLong = 20 * time.Second
	tick     = 2 * time.Millisecond
)
