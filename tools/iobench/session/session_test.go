package session

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/vfs"
	"github.com/binderylog/bindery/tools/iobench/chapter"
	"github.com/binderylog/bindery/tools/iobench/device"
	"github.com/binderylog/bindery/tools/iobench/engine"
	"github.com/binderylog/bindery/tools/iobench/result"
)

func plan(t *testing.T, steps ...Step) Plan {
	t.Helper()
	return Plan{
		Command: "test", Version: "v1", Directories: []Directory{{Path: t.TempDir(), Role: "disk"}}, Steps: steps, Budget: time.Second, MaxWrite: 200 << 20, FileBytes: 16 << 20,
		Rounds: 2, Seed: 1, Prefill: true, Sizes: []int{4096, 65536}, Goal: 5 * time.Millisecond, EntryBytes: 1024, AllowUnsuitable: true, AllowLive: true,
	}
}

func empty(t *testing.T, dir string) {
	t.Helper()
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
}

// TestRunOfAllQuickChapters on the disk of this test: the result is valid and nothing stays behind.
func TestRunOfAllQuickChapters(t *testing.T) {
	p := plan(t, Quick()...)
	var seen []Status
	p.Progress = func(s Status) { seen = append(seen, s) }
	p.Labels = map[string]string{"rack": "7"}
	r, err := Run(t.Context(), p)
	require.NoError(t, err)
	require.NoError(t, r.Validate())
	require.True(t, r.Complete)
	require.Equal(t, []string{"sync", "alloc", "bandwidth", "read", "stalls"}, r.Plan.Chapters)
	require.Len(t, r.Chapters, 5)
	require.NotEmpty(t, r.Device.FileSystem.Type)
	require.NotEmpty(t, r.RunID)
	require.Positive(t, r.Self.OverheadNS)
	require.LessOrEqual(t, r.WrittenBytes(), p.MaxWrite)
	require.NotNil(t, r.Recommendation)
	require.NotEmpty(t, seen)
	for i := 1; i < len(seen); i++ {
		require.GreaterOrEqual(t, seen[i].Done, seen[i-1].Done-1e-9)
	}
	empty(t, p.Directories[0].Path)
}

// TestInterruptedRunKeepsWhatItHas.
func TestInterruptedRunKeepsWhatItHas(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	second := Step{Name: "alloc", Share: 1, Run: func(ctx context.Context, places []*chapter.Place, o chapter.Options) (*chapter.Result, error) {
		cancel()
		return chapter.Alloc(ctx, places[0], o)
	}}
	p := plan(t, Quick()[0], second, Quick()[4])
	r, err := Run(ctx, p)
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, r.Validate())
	require.False(t, r.Complete)
	require.True(t, r.HasWarning(result.WarnPartial))
	require.Len(t, r.Chapters, 2)
	require.True(t, r.Chapters[0].Complete)
	require.False(t, r.Chapters[1].Complete)
	require.Equal(t, "low", r.Recommendation.Confidence)
	empty(t, p.Directories[0].Path)
}

// TestDiskErrorEndsTheRun with an error in the result that forbids its use.
func TestDiskErrorEndsTheRun(t *testing.T) {
	bad := Step{Name: "sync", Share: 1, Run: func(context.Context, []*chapter.Place, chapter.Options) (*chapter.Result, error) {
		return nil, &engine.DiskError{Op: "sync", Err: errors.New("input/output error")}
	}}
	r, err := Run(t.Context(), plan(t, bad))
	require.ErrorContains(t, err, "the disk failed")
	require.False(t, r.Complete)
	require.Equal(t, result.SeverityError, r.Warnings[len(r.Warnings)-1].Severity)
	require.NoError(t, r.Validate())
}

// TestTimeIsShared: what one chapter took longer is taken from the others, and each gets its share of bytes.
func TestTimeIsShared(t *testing.T) {
	var got []chapter.Options
	note := func(wait time.Duration) func(context.Context, []*chapter.Place, chapter.Options) (*chapter.Result, error) {
		return func(_ context.Context, _ []*chapter.Place, o chapter.Options) (*chapter.Result, error) {
			got = append(got, o)
			time.Sleep(wait)
			return &chapter.Result{Chapter: result.Chapter{Name: "x", Cells: []result.Cell{}}}, nil
		}
	}
	p := plan(t, Step{Name: "a", Share: 0.5, Run: note(600 * time.Millisecond)}, Step{Name: "b", Share: 0.5, Run: note(0)}, Sustain(0, 0.5))
	p.Steps[2].Run = note(0)
	p.Budget, p.Limit, p.MaxWrite = 100*time.Second, 10*time.Second, 3<<30
	_, err := Run(t.Context(), p)
	require.NoError(t, err)
	require.LessOrEqual(t, got[0].Budget.Seconds(), 0.8*10/3, "a third of what the limit leaves for measuring")
	require.LessOrEqual(t, got[1].Budget.Seconds(), 0.8*(10-0.6)/2, "half of what is left now")
	require.Equal(t, p.MaxWrite/3, got[0].Bytes)
	require.Equal(t, p.FileBytes, got[0].FileBytes)
	require.Greater(t, got[2].FileBytes, p.FileBytes, "sustain takes what room there is")
	require.LessOrEqual(t, got[2].FileBytes, p.MaxWrite/3, "and no more than it may write")
}

// TestRefusedBeforeAnythingIsWritten: one bad directory of two refuses both.
func TestRefusedBeforeAnythingIsWritten(t *testing.T) {
	p := plan(t, Quick()...)
	p.Directories = append(p.Directories, Directory{Path: "session_test.go", Role: "ledger"})
	r, err := Run(t.Context(), p)
	require.ErrorContains(t, err, "is not a directory")
	require.Nil(t, r)
	empty(t, p.Directories[0].Path)

	p = plan(t, Quick()...)
	p.FileBytes = 1 << 60
	_, err = Run(t.Context(), p)
	var refused *device.RefusedError
	require.ErrorAs(t, err, &refused)
	empty(t, p.Directories[0].Path)
}

// TestPlansNameTheirChapters: every step can run, and `full` measures ledgers on their own disks.
func TestPlansNameTheirChapters(t *testing.T) {
	for name, steps := range map[string][]Step{"quick": Quick(), "full": Full(0), "full2": Full(2), "raw": Raw()} {
		total := 0.0
		for _, s := range steps {
			require.NotNil(t, s.Run, name)
			require.NotEmpty(t, s.Name, name)
			total += s.Share
		}
		require.InDelta(t, 1, total, 0.12, name)
	}
	devices := map[string]map[int]bool{}
	for _, s := range Full(2) {
		if devices[s.Name] == nil {
			devices[s.Name] = map[int]bool{}
		}
		devices[s.Name][s.Device] = true
	}
	require.Equal(t, map[int]bool{1: true, 2: true}, devices[result.ChapterSustain])
	require.Equal(t, map[int]bool{0: true}, devices[result.ChapterSync])
	for name := range chapters {
		require.NotNil(t, Single(name)[0].Run, name)
	}
}

// TestBookieOnTheDisk is worth a warning everywhere but in live, which is made for it.
func TestBookieOnTheDisk(t *testing.T) {
	for _, tc := range []struct {
		name   string
		share  float64
		warned bool
	}{{result.ChapterAlign, 0, true}, {result.ChapterLive, 5, false}} {
		p := plan(t, Single(tc.name)...)
		p.Budget, p.CapPercent = 200*time.Millisecond, tc.share
		lock, err := vfs.OS().Lock(filepath.Join(p.Directories[0].Path, "LOCK"))
		require.NoError(t, err)
		r, err := Run(t.Context(), p)
		require.NoError(t, err)
		warned := slices.ContainsFunc(r.Warnings, func(w result.Warning) bool {
			another := strings.Contains(w.Text, "another iobench") // on this machine's disk: worth one in live too
			return w.Code == result.WarnLiveBookie && (tc.warned || !another)
		})
		require.Equal(t, tc.warned, warned, tc.name)
		require.NotNil(t, r.Chapter(tc.name, 0).Cells[0].Latency)
		require.NoError(t, lock.Close())
	}
}
