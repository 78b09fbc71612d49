package ledgerclient

import (
	"bufio"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/pprof"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// cpuShares says how much of the processor time of a run went into locks, allocation and signalling, by who asked for it: the
// first function on the stack that is not the runtime's. Names of benchmarks' own functions are left out: what they do is
// not the client's doing.
type cpuShares struct {
	total float64                          // us
	by    map[shareKind]map[string]float64 // share of total
}

type shareKind string

const (
	shareLock   shareKind = "lock"   // mutexes: taking, waiting and letting go
	shareAlloc  shareKind = "alloc"  // objects, with what a caller is made to do for the collector
	shareSignal shareKind = "signal" // channels, and waking who waits at them
	shareGC     shareKind = "gc"     // the collector's own goroutines
)

// kindOfFrame tells what a function of the runtime or of sync is about.
func kindOfFrame(name string) shareKind {
	switch {
	case strings.Contains(name, "sync.(*Mutex)."), strings.Contains(name, "sync.(*RWMutex)."):
		return shareLock
	case strings.HasPrefix(name, "runtime.mallocgc"), name == "runtime.newobject", name == "runtime.growslice", strings.HasPrefix(name, "runtime.makeslice"),
		strings.HasPrefix(name, "runtime.makemap"), strings.HasPrefix(name, "runtime.mapassign"):
		return shareAlloc
	case name == "runtime.chansend", name == "runtime.chanrecv", name == "runtime.selectgo", name == "runtime.selectnbsend":
		return shareSignal
	case name == "runtime.gcBgMarkWorker", name == "runtime.bgsweep", name == "runtime.bgscavenge":
		return shareGC
	}
	return ""
}

// runtimeFrame reports whether a function belongs to the language rather than to a program.
func runtimeFrame(name string) bool {
	pkg := name
	if i := strings.LastIndexByte(pkg, '/'); i >= 0 {
		pkg = pkg[i+1:]
	}
	pkg, _, _ = strings.Cut(pkg, ".")
	return pkg == "runtime" || pkg == "sync" || pkg == "atomic"
}

// parseTraces reads what `go tool pprof -traces -unit=us` prints: stacks, the innermost function first, the first line with
// the time in front.
func parseTraces(r io.Reader) (*cpuShares, error) {
	s := &cpuShares{by: map[shareKind]map[string]float64{}}
	var stack []string
	var us float64
	flush := func() {
		if len(stack) > 0 {
			s.add(stack, us)
		}
		stack = stack[:0]
	}
	in := false
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		switch {
		case strings.HasPrefix(lines.Text(), "-----"):
			flush()
			in = true
		case !in || len(f) == 0 || strings.HasSuffix(f[0], ":"): // the head, or a label
		case len(stack) == 0:
			v, err := strconv.ParseFloat(strings.TrimSuffix(f[0], "us"), 64)
			if err != nil || len(f) < 2 {
				continue
			}
			us = v
			stack = append(stack, f[1])
		default:
			stack = append(stack, f[0])
		}
	}
	flush()
	for _, m := range s.by {
		for where := range m {
			m[where] /= s.total
		}
	}
	return s, lines.Err()
}

func (s *cpuShares) add(stack []string, us float64) {
	s.total += us
	kind, where := shareKind(""), ""
	for _, name := range stack {
		if kind == "" {
			kind = kindOfFrame(name)
		}
		if kind != "" && !runtimeFrame(name) {
			where = name
			break
		}
	}
	if kind == shareGC {
		where = "garbage collector"
	}
	if where == "" || strings.Contains(where, "throughput") {
		return
	}
	if s.by[kind] == nil {
		s.by[kind] = map[string]float64{}
	}
	s.by[kind][where] += us
}

// highest returns the caller with the largest share of a kind, and the sum of all.
func (s *cpuShares) highest(kind shareKind) (where string, share, sum float64) {
	for w, v := range s.by[kind] {
		sum += v
		if v > share || v == share && w < where {
			where, share = w, v
		}
	}
	return where, share, sum
}

// profiled runs f under the profiler of the processor; nil shares say that it is in use, or that there is no go command.
func profiled(b *testing.B, f func()) *cpuShares {
	goTool, err := exec.LookPath("go")
	file := filepath.Join(b.TempDir(), "cpu.pprof")
	out, cerr := os.Create(file)
	require.NoError(b, cerr)
	defer out.Close() //nolint:errcheck // read back below
	if err != nil || pprof.StartCPUProfile(out) != nil {
		f()
		return nil
	}
	f()
	b.StopTimer()
	pprof.StopCPUProfile()
	text, err := exec.CommandContext(context.Background(), goTool, "tool", "pprof", "-traces", "-unit=us", file).Output()
	require.NoError(b, err)
	s, err := parseTraces(strings.NewReader(string(text)))
	require.NoError(b, err)
	return s
}

// report gives the largest share of each kind as a metric, and logs where it is.
func (s *cpuShares) report(b *testing.B) {
	if s == nil || s.total == 0 {
		return
	}
	for _, kind := range []shareKind{shareLock, shareAlloc, shareSignal, shareGC} {
		where, share, sum := s.highest(kind)
		b.ReportMetric(100*share, "max-"+string(kind)+"-%cpu")
		if where != "" {
			b.Logf("%s: %.1f %% at %s, %.1f %% in all, of %.1f s", kind, 100*share, where, 100*sum, s.total/1e6)
		}
	}
}

func TestSharesOfAProfile(t *testing.T) {
	s, err := parseTraces(strings.NewReader(`File: x.test
Type: cpu
Duration: 1s, Total samples = 1s
-----------+-------------------------------------------------------
    bookie:  b0
ledgerclient:  sender
   100000us   runtime.futex
             runtime.lock2 (inline)
             internal/sync.(*Mutex).lockSlow
             sync.(*Mutex).Lock (inline)
             example.com/x/ledgerclient.(*Writer).push
             example.com/x/ledgerclient.(*Writer).AppendAsync
-----------+-------------------------------------------------------
   50000us   runtime.memclrNoHeapPointers
             runtime.mallocgc
             runtime.growslice
             example.com/x/ledgerclient.(*conn).enqueue
-----------+-------------------------------------------------------
   30000us   runtime.mallocgcSmallScanNoHeader
             runtime.mallocgc
             runtime.newobject
             example.com/x/ledgerclient.(*throughput).drive
-----------+-------------------------------------------------------
   20000us   runtime.scanObject
             runtime.gcDrain
             runtime.gcBgMarkWorker
-----------+-------------------------------------------------------
   800000us   syscall.Syscall
             net.(*conn).Write
             example.com/x/ledgerclient.(*conn).sendLoop
`))
	require.NoError(t, err)
	require.InDelta(t, 1e6, s.total, 1)
	for kind, want := range map[shareKind]struct {
		where string
		share float64
	}{
		shareLock:   {"example.com/x/ledgerclient.(*Writer).push", 0.1},
		shareAlloc:  {"example.com/x/ledgerclient.(*conn).enqueue", 0.05},
		shareGC:     {"garbage collector", 0.02},
		shareSignal: {"", 0},
	} {
		where, share, _ := s.highest(kind)
		require.Equal(t, want.where, where, kind)
		require.InDelta(t, want.share, share, 1e-9, kind)
	}
}
