package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/binderylog/bindery/internal/vfs"
	"github.com/binderylog/bindery/tools/iobench/device"
	"github.com/binderylog/bindery/tools/iobench/result"
	"github.com/binderylog/bindery/tools/iobench/session"
)

// childEnv makes the test binary be iobench, for tests that kill it.
const childEnv = "IOBENCH_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		os.Exit(execute(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
	}
	goleak.VerifyTestMain(m)
}

func run(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = execute(context.Background(), args, &out, &errs)
	return code, out.String(), errs.String()
}

// short makes a run of a second that may run wherever the test is.
func short(args ...string) []string {
	return append(args, "--duration", "1s", "--file-mib", "16", "--rounds", "2", "--max-write", "300MiB", "--allow-unsuitable", "--allow-live")
}

func TestQuickAsJSON(t *testing.T) {
	dir := t.TempDir()
	out := filepath.Join(t.TempDir(), "r.json")
	code, stdout, stderr := run(short("quick", dir, "--output", "json", "--out", out, "--label", "rack=1")...)
	require.Equal(t, 0, code, stderr)
	runs, err := result.Decode(strings.NewReader(stdout))
	require.NoError(t, err)
	require.Len(t, runs, 1)
	r := runs[0]
	require.True(t, r.Complete)
	require.Equal(t, map[string]string{"rack": "1"}, r.Labels)
	require.NotNil(t, r.Recommendation)
	require.Positive(t, r.WrittenBytes())
	require.LessOrEqual(t, r.WrittenBytes(), int64(300<<20))
	file, err := os.ReadFile(out)
	require.NoError(t, err)
	require.Equal(t, stdout, string(file))
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left, "nothing stays behind")
}

// TestPitfall01SummaryIsDurable: what is not durable is stamped, and the settings rest on durable writes only.
func TestPitfall01SummaryIsDurable(t *testing.T) {
	code, stdout, stderr := run(short("quick", t.TempDir())...)
	require.Equal(t, 0, code, stderr)
	for _, want := range []string{"VERDICT", "durable writes, one at a time", "NOT DURABLE", "[journal]", "max_group_bytes", "written"} {
		require.Contains(t, stdout, want)
	}
}

// TestPitfall18BytesAreSaidFirst: before anything is written it says how much may be, unless it is told to be quiet.
func TestPitfall18BytesAreSaidFirst(t *testing.T) {
	code, _, stderr := run(short("align", t.TempDir())...)
	require.Equal(t, 0, code, stderr)
	require.Contains(t, stderr, "measures for 1 s, and prepares test files before; writes at most 0.3 GB")
	code, _, stderr = run(short("align", t.TempDir(), "--quiet")...)
	require.Equal(t, 0, code, stderr)
	require.Empty(t, stderr)
}

func TestSingleChapters(t *testing.T) {
	for _, name := range []string{"align", "journals", "metadata", "model", "engines", "live"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			code, stdout, stderr := run(short(name, dir, "--output", "json")...)
			require.Equal(t, 0, code, stderr)
			runs, err := result.Decode(strings.NewReader(stdout))
			require.NoError(t, err)
			require.Equal(t, name, runs[0].Chapters[0].Name)
			require.NotEmpty(t, runs[0].Chapters[0].Cells)
			left, err := os.ReadDir(dir)
			require.NoError(t, err)
			require.Empty(t, left)
		})
	}
}

// TestHelpExplainsNames of figures.
func TestHelpExplainsNames(t *testing.T) {
	code, stdout, _ := run("engines", "--help")
	require.Zero(t, code)
	require.Contains(t, stdout, "64x1024: batches of 64 records of 1,024 bytes")
	for _, c := range chapterCommands() {
		require.Contains(t, c.Long, "How to read the names", c.Name())
	}
}

func TestFullOnTwoDirectories(t *testing.T) {
	a, b := t.TempDir(), t.TempDir()
	args := short("full", "--journal", a, "--ledger", b, "--rate", "20MB", "--output", "json")
	code, stdout, stderr := run(append(args, "--duration", "4s")...)
	require.Equal(t, 0, code, stderr)
	runs, err := result.Decode(strings.NewReader(stdout))
	require.NoError(t, err)
	r := runs[0]
	require.Equal(t, "journal", r.Device.Role)
	require.Equal(t, "ledger", r.OtherDevices[0].Role)
	for _, want := range []struct {
		name   string
		device int
	}{
		{result.ChapterSync, 0}, {result.ChapterAlloc, 0}, {result.ChapterAlign, 0}, {result.ChapterJournals, 0}, {result.ChapterMetadata, 0}, {result.ChapterModel, 0}, {result.ChapterCoupling, 0},
		{result.ChapterBandwidth, 1}, {result.ChapterRead, 1}, {result.ChapterInterfere, 0}, {result.ChapterSustain, 1}, {result.ChapterStalls, 0},
	} {
		require.NotNil(t, r.Chapter(want.name, want.device), want.name)
	}
}

func TestWrongUse(t *testing.T) {
	dir := t.TempDir()
	for _, tc := range []struct {
		name string
		args []string
		code int
		want string
	}{
		{"no directory", []string{"quick"}, exitUsage, "iobench: DIR is missing (usage: iobench quick DIR... [flags])"},
		{"no device", []string{"raw"}, exitUsage, "DEVICE is missing (usage: iobench raw DEVICE"},
		{"one directory too many", []string{"sync", dir, "b"}, exitUsage, `"b" is one argument too many (usage: iobench sync DIR`},
		{"arguments of full", []string{"full", dir}, exitUsage, "takes no arguments (usage: iobench full --journal DIR"},
		{"no result", []string{"report"}, exitUsage, "RUN.json is missing"},
		{"nothing to compare", []string{"compare"}, exitUsage, "missing (usage: iobench compare"},
		{"no hosts", []string{"collect"}, exitUsage, "--hosts FILE is missing: the list of hosts, one a line (usage: iobench collect"},
		{"no configuration", []string{"apply", "result/testdata/full.json"}, exitUsage, "--config FILE is missing: which file to change (usage: iobench apply"},
		{"missing directory", []string{"quick", filepath.Join(dir, "none")}, exitFailed, "no such file"},
		{"a file", []string{"quick", "iobench_test.go"}, exitFailed, "is not a directory"},
		{"no space", append(short("quick", dir), "--file-mib", "1048576"), exitRefused, "MiB left"},
		{"output", []string{"quick", dir, "--output", "xml"}, exitUsage, "none of table, json, prometheus"},
		{"duration", []string{"quick", dir, "--duration", "1ms"}, exitUsage, "outside 1s"},
		{"file size", []string{"quick", dir, "--file-mib", "1"}, exitUsage, "outside 16"},
		{"rounds", []string{"quick", dir, "--rounds", "0"}, exitUsage, "outside 1"},
		{"cap", []string{"quick", dir, "--max-write", "lots"}, exitUsage, "such as 10GiB"},
		{"rate", []string{"quick", dir, "--rate", "fast"}, exitUsage, "such as 300MB"},
		{"entry", []string{"quick", dir, "--entry", "6MiB"}, exitUsage, "from 1 to 5MiB"},
		{"method", []string{"quick", dir, "--method", "uring"}, exitUsage, "none of dsync"},
		{"label", []string{"quick", dir, "--label", "rack"}, exitUsage, "k=v"},
		{"out", short("quick", dir, "--out", filepath.Join(dir, "none", "r.json")), exitUsage, "--out"},
		{"journal", []string{"full"}, exitUsage, "--journal DIR is missing: where the journal will be (usage: iobench full"},
		{"hours", []string{"soak", dir, "--hours", "0"}, exitUsage, "outside 1 to"},
		{"share", []string{"live", dir, "--cap", "90%"}, exitUsage, "no share"},
		{"raw on a directory", []string{"raw", dir}, exitFailed, "is not a block device"},
		{"raw on a file", []string{"raw", "iobench_test.go"}, exitFailed, "is not a block device"},
		{"command", []string{"quik"}, exitUsage, `unknown command "quik"; did you mean "quick"?`},
		{"no command at all", []string{"measure"}, exitUsage, "--help` lists them"},
		{"flag", []string{"quick", "--nope", dir}, exitUsage, "unknown flag: --nope (usage: iobench quick DIR"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			code, stdout, stderr := run(tc.args...)
			require.Equal(t, tc.code, code, stderr)
			require.Contains(t, stderr, tc.want)
			require.Equal(t, 1, strings.Count(stderr, "\n"), "one line")
			require.Empty(t, stdout)
		})
	}
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
}

// TestPitfall12UnsuitableFileSystemIsRefused, and stamped where one insists.
func TestPitfall12UnsuitableFileSystemIsRefused(t *testing.T) {
	const shm = "/dev/shm"
	if kind, err := vfs.FSType(shm); err != nil || vfs.UnsuitableFS(kind) == "" {
		t.Skip("no tmpfs to refuse")
	}
	code, stdout, stderr := run("quick", shm)
	require.Equal(t, exitRefused, code)
	require.Empty(t, stdout)
	require.Contains(t, stderr, "--allow-unsuitable")
	code, stdout, stderr = run(short("sync", shm)...)
	require.Equal(t, 0, code, stderr)
	require.Contains(t, stdout, "NOT REPRESENTATIVE")
	require.Contains(t, stdout, "confidence low")
}

// TestKilledRunLeavesNothing: kill -9 in the middle of writing.
func TestKilledRunLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	c := exec.CommandContext(t.Context(), os.Args[0], short("sync", dir, "--duration", "1m", "--max-write", "2GiB")...)
	c.Args = append(c.Args, "--duration", "1m")
	c.Env = append(os.Environ(), childEnv+"=1")
	require.NoError(t, c.Start())
	awaitWriting(t, c.Process.Pid, dir)
	require.NoError(t, c.Process.Signal(syscall.SIGKILL))
	require.Error(t, c.Wait())
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
}

// awaitWriting waits until a process has a file of dir open.
func awaitWriting(t *testing.T, pid int, dir string) {
	t.Helper()
	require.Eventually(t, func() bool {
		fds, _ := os.ReadDir(filepath.Join("/proc", itoa(pid), "fd"))
		for _, fd := range fds {
			if target, _ := os.Readlink(filepath.Join("/proc", itoa(pid), "fd", fd.Name())); strings.HasPrefix(target, dir) {
				return true
			}
		}
		return false
	}, 2*time.Minute, 20*time.Millisecond)
}

// TestInterruptLeavesAValidResult: Ctrl-C, or a terminal that is gone, ends with what was measured, and exit code 4.
func TestInterruptLeavesAValidResult(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGHUP} {
		t.Run(sig.String(), func(t *testing.T) {
			caught := make(chan os.Signal, 1)
			signal.Notify(caught, sig) // else a child inherits that whoever started this test has it ignored
			defer signal.Stop(caught)
			dir := t.TempDir()
			out := filepath.Join(t.TempDir(), "r.json")
			c := exec.CommandContext(t.Context(), os.Args[0], short("sync", dir, "--max-write", "2GiB", "--out", out)...)
			c.Args = append(c.Args, "--duration", "10m")
			c.Env = append(os.Environ(), childEnv+"=1")
			var stderr bytes.Buffer
			c.Stderr = &stderr
			require.NoError(t, c.Start())
			awaitWriting(t, c.Process.Pid, dir)
			time.Sleep(2 * time.Second)
			require.NoError(t, c.Process.Signal(sig))
			err := c.Wait()
			var exited *exec.ExitError
			require.ErrorAs(t, err, &exited, stderr.String())
			require.Equal(t, exitPartial, exited.ExitCode(), stderr.String())
			runs, err := result.ReadFile(out)
			require.NoError(t, err)
			require.False(t, runs[0].Complete)
			left, err := os.ReadDir(dir)
			require.NoError(t, err)
			require.Empty(t, left)
		})
	}
}

func itoa(n int) string {
	b := []byte{}
	for ; n > 0; n /= 10 {
		b = append([]byte{byte('0' + n%10)}, b...)
	}
	return string(b)
}

func TestPrometheusText(t *testing.T) {
	code, stdout, stderr := run(short("sync", t.TempDir(), "--output", "prometheus")...)
	require.Equal(t, 0, code, stderr)
	require.Contains(t, stdout, "# TYPE iobench_latency_seconds gauge\n")
	require.Regexp(t, `(?m)^iobench_latency_seconds\{dir="[^"]+",disk="[^"]*",chapter="sync",cell="[a-z_]+/4096",durable="true",quantile="0.99"\} [0-9.e-]+$`, stdout)
	require.Regexp(t, `(?m)^iobench_complete\{dir="[^"]+",disk="[^"]*"\} 1$`, stdout)
	for line := range strings.Lines(stdout) {
		require.Regexp(t, `^(# TYPE iobench_[a-z_]+ gauge|iobench_[a-z_]+\{.*\} [-+0-9.e]+)$`, strings.TrimSuffix(line, "\n"))
	}
}

func TestSizes(t *testing.T) {
	for text, want := range map[string]int64{"4096": 4096, "1KiB": 1024, "10GiB": 10 << 30, "300MB": 300e6, "1.5MiB": 3 << 19, "2T": 2 << 40, "7B": 7} {
		got, err := parseSize(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{"", "x", "-1MiB", "1e40GB", "MiB"} {
		_, err := parseSize(text)
		require.Error(t, err, text)
	}
}

func TestProgressLine(t *testing.T) {
	s := session.Status{Chapter: "interfere", Cell: strings.Repeat("x", 60), Done: 0.5, Left: 90 * time.Second, Written: 12e9}
	text := line(s, 30*time.Second)
	require.LessOrEqual(t, len(text), 79)
	s.Cell = "all/same"
	text = line(s, 30*time.Second)
	require.Contains(t, text, "67 %")
	require.Contains(t, text, "12.0 GB written")
	require.Contains(t, text, "60 s left")
	require.Contains(t, line(s, time.Hour), "ends soon")
	s.Left, s.Later = 3*time.Hour+5*time.Minute, 80*time.Minute
	require.Contains(t, line(s, 0), "3 h 5 min left")
	require.Contains(t, line(s, 24*time.Hour), "80 min left", "those that have not begun are still to come")
	var b bytes.Buffer
	p := startProgress(&b, false)
	p.update(s)
	p.finish()
	require.Empty(t, b.String(), "not a terminal")
}

func TestVerifiedTable(t *testing.T) {
	r := &result.Run{Device: result.Device{Dir: "/data/journal"}, Plan: result.Plan{EntryBytes: 1024}, Verification: &result.Verification{
		PeakPredictedPerS: 100_000, PeakMeasuredPerS: 80_000, Rest: "a bookie whose disk is memory, /dev/shm", Rows: []result.Verified{
			{
				Predicted: result.Prediction{LoadPct: 50, AddsPerS: 145_000, P50US: 11000, P99US: 300, P99LowUS: 250000, P99HighUS: 400000, LimitedBy: "CPU"}, MeasuredP50US: 10000,
				MeasuredP99LowUS: 100000, MeasuredP99HighUS: 900000, P50Within: true, NoisePct: 3,
			},
			{Predicted: result.Prediction{LoadPct: 80, P50US: 150, LimitedBy: "device"}, MeasuredP50US: 100, P99Within: true, NoisePct: 130},
		},
	}}
	show := func() string {
		var b bytes.Buffer
		r.Verification.Judge()
		require.NoError(t, printVerified(&b, r))
		for line := range strings.Lines(b.String()) {
			require.LessOrEqual(t, len(line), 121, line)
		}
		return b.String()
	}
	text := show()
	for _, want := range []string{"/data/journal", "100000 adds/s predicted, 80000 measured +25%, noise 0%, paused 0%  off", "+10% ok", "250000-400000", "100000-900000 off", "CPU", "+50% noisy", "130%     0% device", "memory, /dev/shm", "further off"} {
		require.Contains(t, text, want)
	}
	require.False(t, r.Verification.Noisy, "what is off and not noisy is proven")

	r.Verification.PeakWithin, r.Verification.Rows[0].P99Within = true, true
	require.Contains(t, show(), "no verdict")
	require.True(t, r.Verification.Noisy)
	r.Verification.Rows[1].P50Within = true
	require.Contains(t, show(), "every prediction is as close as it must be")
	require.True(t, r.Verification.Within)
	require.False(t, r.Verification.Noisy)

	code, _, stderr := run("verify", t.TempDir(), "--each", "1ms")
	require.Equal(t, exitUsage, code)
	require.Contains(t, stderr, "--each")
	code, _, stderr = run("verify", t.TempDir(), "--bindery", "/nonexistent/bindery")
	require.Equal(t, exitFailed, code)
	require.Contains(t, stderr, "no such file")
}

// TestRawAsksForTheSerialNumber: a wrong answer writes nothing.
func TestRawAsksForTheSerialNumber(t *testing.T) {
	f := &device.Facts{Device: result.Device{Dir: "/dev/example", Model: "X", SizeBytes: 1e12}}
	var out bytes.Buffer
	err := confirm(f, "", strings.NewReader("yes\n"), &out)
	var refused *device.RefusedError
	require.ErrorAs(t, err, &refused)
	require.ErrorContains(t, err, "nothing was written")
	require.Contains(t, out.String(), "EVERYTHING ON IT WILL BE LOST")
	require.NoError(t, confirm(f, "", strings.NewReader("/dev/example\n"), &out), "a disk without a serial number is named")
	require.NoError(t, confirm(f, "/dev/example", strings.NewReader(""), &out))
	require.Error(t, confirm(f, "", strings.NewReader(""), &out))
}

func TestFiguresThatAreNone(t *testing.T) {
	dir := t.TempDir()
	for _, args := range [][]string{
		{"live", dir, "--cap", "NaN%"}, {"live", dir, "--cap", "5%x"}, {"live", dir, "--cap", "5"}, {"live", dir, "--cap", "-1%"}, {"live", dir, "--cap", "Inf%"},
		{"quick", dir, "--rate", "NaN"}, {"quick", dir, "--max-write", "NaNGiB"}, {"quick", dir, "--entry", "nan"}, {"quick", dir, "--rate", "InfMB"},
		{"quick", dir, "--out", dir},
	} {
		code, stdout, stderr := run(args...)
		require.Equal(t, exitUsage, code, "%v: %s", args, stderr)
		require.Empty(t, stdout)
	}
	code, _, stderr := run(short("quick", "")...)
	require.NotZero(t, code)
	require.Contains(t, stderr, "a directory without a name")
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries)
}

// TestAResultThatCanNotBeWrittenIsPrinted: it may have taken hours.
func TestAResultThatCanNotBeWrittenIsPrinted(t *testing.T) {
	dir, out := t.TempDir(), filepath.Join(t.TempDir(), "r.json")
	require.NoError(t, os.Mkdir(out+".tmp", 0o700)) // in the way of the file on its way in
	code, stdout, stderr := run(short("sync", dir, "--out", out, "--quiet")...)
	require.Equal(t, exitFailed, code)
	require.Contains(t, stderr, "the result stands on the standard output instead")
	runs, err := result.Decode(strings.NewReader(stdout))
	require.NoError(t, err)
	require.Len(t, runs, 1)
}
