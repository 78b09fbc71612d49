package offload

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"os"
	"os/exec"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/offload/objstore"
	"github.com/binderylog/bindery/offload/objstore/mem"
	"github.com/binderylog/bindery/offload/objstore/s3test"
)

// memoryOrder asks a process of its own, whose memory is then the worker's alone, for the offload of one ledger.
type memoryOrder struct {
	Geometry Geometry
	Entries  int    // of 1 KiB
	URL      string // of the S3 server; empty: targets that count parts and drop them, which no disk has to hold
}

// memoryEnv holds a memoryOrder and makes TestMain run it.
const memoryEnv = "BINDERY_TEST_MEMORY_ORDER"

// BenchmarkTierMemory measures how far the resident memory of a process that offloads one ledger rises above what it was before (P6): with
// an S3 server and the default verification, and for a ledger of 64 GiB with targets that keep nothing.
func BenchmarkTierMemory(b *testing.B) {
	for _, c := range []struct {
		g   Geometry
		gib int
		s3  bool
	}{{Geometry{2, 1}, 1, true}, {Geometry{4, 2}, 1, true}, {Geometry{10, 4}, 1, true}, {Geometry{4, 2}, 64, false}} {
		b.Run(fmt.Sprintf("%s/%dGiB", c.g, c.gib), func(b *testing.B) {
			o := memoryOrder{Geometry: c.g, Entries: c.gib << 20}
			if c.s3 {
				srv := s3test.Start(b, s3test.Options{})
				makeBuckets(b, srv, c.g.Shards())
				o.URL = srv.URL
			}
			order, err := json.Marshal(o)
			require.NoError(b, err)
			bound := float64(c.g.Shards()+defaultInFlight)*CellBytesDefault*1.25 + 32<<20
			var peaks []float64
			for b.Loop() {
				cmd := exec.CommandContext(b.Context(), os.Args[0]) //nolint:gosec // this very program
				cmd.Env = append(os.Environ(), memoryEnv+"="+string(order), "TMPDIR="+b.TempDir())
				cmd.Stderr = os.Stderr
				out, err := cmd.Output()
				require.NoError(b, err)
				peak, err := strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
				require.NoError(b, err)
				peaks = append(peaks, peak)
			}
			b.ReportMetric(median(peaks)/(1<<20), "MiB")
			b.ReportMetric(median(peaks)/bound, "P6-of-bound")
		})
	}
}

// runMemoryOrder offloads a ledger and returns the peak of this process's resident bytes above what it was before.
func runMemoryOrder(text string) (int64, error) {
	var o memoryOrder
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return 0, err
	}
	var stores []objstore.Store
	for i := range o.Geometry.Shards() {
		if o.URL == "" {
			stores = append(stores, &sink{Store: mem.New(), sizes: map[string]int64{}})
			continue
		}
		s, err := openBucket(o.URL, i)
		if err != nil {
			return 0, err
		}
		stores = append(stores, s)
	}
	x, err := bucketsIn(stores)
	if err != nil {
		return 0, err
	}
	defer x.close()
	dir, err := os.MkdirTemp("", "memory")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // of a test
	options := Options{Records: NewRecords(x.views), Targets: x.targets, Entries: clonedEntries(benchSource()), Dir: dir, Geometry: o.Geometry, ReadRate: -1, ScrubRate: -1}
	if o.URL == "" {
		options.Verify = VerifyHead
	}
	w, err := NewWorker(options)
	if err != nil {
		return 0, err
	}
	defer w.Close() //nolint:errcheck // of a test
	ctx := context.Background()
	if _, err := x.views.Ledgers.Create(ctx, 1, benchRecord(o.Entries)); err != nil {
		return 0, err
	}
	debug.FreeOSMemory()
	before, err := residentBytes("VmRSS:")
	if err != nil {
		return 0, err
	}
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil { // the peak counts from here
		return 0, err
	}
	if err := w.Offload(ctx, 1); err != nil {
		return 0, err
	}
	peak, err := residentBytes("VmHWM:")
	return peak - before, err
}

// clonedEntries yields every entry in memory of its own, as one does that reads them from bookies.
func clonedEntries(from EntrySource) EntrySource {
	return func(ctx context.Context, id ledger.ID, m *ledger.Metadata, first, last ledger.EntryID) iter.Seq2[Entry, error] {
		return func(yield func(Entry, error) bool) {
			for e, err := range from(ctx, id, m, first, last) {
				e.Payload = append([]byte(nil), e.Payload...)
				if !yield(e, err) {
					return
				}
			}
		}
	}
}

// residentBytes reads a line of /proc/self/status.
func residentBytes(field string) (int64, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(status), field)
	number, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
	kib, err := strconv.ParseInt(number, 10, 64)
	return kib << 10, err
}

// sink keeps whole objects in memory, and of parts nothing but how long they were together.
type sink struct {
	*mem.Store

	mu    sync.Mutex
	sizes map[string]int64
}

func (s *sink) CreateUpload(context.Context, string, objstore.UploadOptions) (string, error) {
	return "upload", nil
}

func (s *sink) PutPart(_ context.Context, key, _ string, number int, body objstore.Body) (objstore.Part, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sizes[key] += int64(len(body.Data))
	return objstore.Part{Number: number, Size: int64(len(body.Data)), CRC32C: body.CRC32C, ETag: "part"}, nil
}

func (s *sink) CompleteUpload(ctx context.Context, key, _ string, _ []objstore.Part) (objstore.Info, error) {
	return s.Head(ctx, key)
}

func (s *sink) Head(ctx context.Context, key string) (objstore.Info, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if size, ok := s.sizes[key]; ok {
		return objstore.Info{Key: key, Size: size}, nil
	}
	return s.Store.Head(ctx, key)
}
