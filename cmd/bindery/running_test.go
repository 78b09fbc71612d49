package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/binderylog/bindery/bookie"
	"github.com/binderylog/bindery/internal/config"
	"github.com/binderylog/bindery/internal/freeport"
	"github.com/binderylog/bindery/internal/metadata"
)

// running is one bookie that `bindery run` runs inside the test, with its metadata in memory.
type running struct {
	t      *testing.T
	dir    string
	conf   string
	uri    string
	views  *metadata.Views
	admin  string // host:port
	cancel context.CancelFunc
	ended  chan int
	logs   *lockedBuffer
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// newRunning prepares a bookie; text is added to its configuration.
func newRunning(t *testing.T, text string) *running {
	t.Helper()
	uri, views := memoryCluster(t)
	r := &running{t: t, dir: t.TempDir(), uri: uri, views: views, admin: freeport.Address(freeport.Test(t))}
	r.conf = filepath.Join(r.dir, "bindery.toml")
	r.write(text)
	succeeds(t, "cluster", "init", "--metadata", uri)
	succeeds(t, "node", "init", "--config", r.conf)
	return r
}

// write replaces the configuration.
func (r *running) write(text string) {
	r.t.Helper()
	base := ""
	if r.conf != "" {
		if old, err := os.ReadFile(r.conf); err == nil {
			base, _, _ = strings.Cut(string(old), "# extra\n")
		}
	}
	if base == "" {
		base = fmt.Sprintf("[bookie]\nid = \"b1\"\nlisten = %q\n[metadata]\nuri = %q\n[storage]\njournal_dirs = [%q]\nledger_dirs = [%q]\nmemory = \"256MiB\"\n"+
			"[expert]\nentry_log_size = \"16MiB\"\n[http]\nlisten = %q\n", freeport.Address(freeport.Test(r.t)), r.uri, r.dir+"/j", r.dir+"/l", r.admin)
	}
	require.NoError(r.t, os.WriteFile(r.conf, []byte(base+"# extra\n"+text), 0o600))
}

const anyDisk = "[disk]\nallow_any_fs = true\nallow_shared = true\n"

// start runs it until the bookie serves.
func (r *running) start(args ...string) {
	r.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel, r.ended, r.logs = cancel, make(chan int, 1), &lockedBuffer{}
	go func() {
		r.ended <- execute(ctx, append([]string{"run", "--config", r.conf, "--set", "journal.segment_size=16MiB"}, args...), r.logs, r.logs)
	}()
	r.t.Cleanup(func() { r.stop() })
	require.Eventually(r.t, func() bool {
		_, _, code := line(r.t, "status", "--server", r.admin)
		return code == exitOK || code == exitFindings && strings.Contains(r.logs.String(), "serving")
	}, 30*time.Second, 20*time.Millisecond, "%s", r.logs)
	require.Eventually(r.t, func() bool { return strings.Contains(r.logs.String(), "\"serving\"") }, 30*time.Second, 5*time.Millisecond, "%s", r.logs)
}

// stop ends it as a signal does and returns the exit code.
func (r *running) stop() int {
	r.t.Helper()
	if r.cancel == nil {
		return 0
	}
	r.cancel()
	r.cancel = nil
	return <-r.ended
}

func TestRunOfARunningBookie(t *testing.T) {
	r := newRunning(t, anyDisk)
	r.start()
	fails(t, bookie.ExitLocked, "bookie b1 runs already: another process has "+r.dir, "run", "--config", r.conf, "--set", "log.level=error")
	var rows []struct{ Address string }
	require.NoError(t, json.Unmarshal([]byte(succeeds(t, "cluster", "bookies", "--metadata", r.uri, "--output", "json")), &rows))
	require.Len(t, rows, 1)
	for _, args := range [][]string{{"status"}, {"gc", "status"}, {"gc", "run"}} { // the wrong one of the two ports
		fails(t, exitFailed, "a bookie's port (bookie.listen) answers there", append(args, "--server", rows[0].Address)...)
	}
	fails(t, exitUsage, "no such bookie there: the process has 1 bookie", "gc", "status", "--server", r.admin, "--bookie", "9")
	fails(t, exitUsage, "no such bookie there: the process has 1 bookie", "gc", "run", "--server", r.admin, "--bookie", "9")
	require.Equal(t, "minor compaction suspended, until `bindery gc resume`\n", succeeds(t, "gc", "suspend", "--minor", "--server", r.admin))
	require.Equal(t, "minor and major compaction resumed\n", succeeds(t, "gc", "resume", "--server", r.admin))
	require.Equal(t, "a pass was asked for; `bindery gc status` shows it\n", succeeds(t, "gc", "run", "--server", r.admin))
	require.Equal(t, exitOK, r.stop(), "%s", r.logs)
}

// TestInterruptedWrite: a signal ends a write that waits for its input; what came is sealed and the ledger named.
func TestInterruptedWrite(t *testing.T) {
	r := newRunning(t, anyDisk)
	r.start()
	name := r.dir + "/pipe"
	require.NoError(t, unix.Mkfifo(name, 0o600))
	pipe, err := os.OpenFile(name, os.O_RDWR, 0)
	require.NoError(t, err)
	defer pipe.Close()
	_, err = pipe.WriteString("hello\nhalf")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var out, errs lockedBuffer
	ended := make(chan int, 1)
	go func() {
		ended <- execute(ctx, []string{"ledger", "write", "--metadata", r.uri, "--ensemble", "1", "--split", "lines", name}, &out, &errs)
	}()
	require.Eventually(t, func() bool {
		return strings.Contains(body(t, r.admin, "/metrics"), "bookkeeper_server_ADD_ENTRY_count{success=\"true\"} 1")
	}, 30*time.Second, 10*time.Millisecond,
		"%s", body(t, r.admin, "/metrics"))
	cancel()
	require.Equal(t, exitFailed, <-ended, "%s", &errs)
	require.Empty(t, out.String())
	require.Contains(t, errs.String(), "interrupted: sealing ledger 0; a second signal leaves it open, for `bindery ledger recover 0`")
	require.Contains(t, errs.String(), "ledger 0 holds the first 1 entries")
	require.Equal(t, "hello\n", succeeds(t, "ledger", "read", "0", "--metadata", r.uri))
	require.Contains(t, succeeds(t, "ledger", "show", "0", "--metadata", r.uri), "CLOSED")
	require.Equal(t, exitOK, r.stop(), "%s", r.logs)
}

func TestReload(t *testing.T) {
	r := newRunning(t, anyDisk+"[gc]\ninterval = \"5m\"\n")
	r.start()
	require.Equal(t, "nothing is different\n", succeeds(t, "config", "reload", "--server", r.admin))

	r.write(anyDisk + "full_at = 0.97\n[gc]\ninterval = \"7m\"\nrate = \"9MiB\"\n[log]\nlevel = \"debug\"\n[limits]\nin_flight = \"20MiB\"\nslow_client_timeout = \"5s\"\n" +
		"[journal]\nmax_group_wait = \"2ms\"\nmax_group_bytes = \"1MiB\"\n")
	out, _, code := line(t, "config", "reload", "--server", r.admin, "--output", "json")
	require.Equal(t, exitFindings, code)
	var changes []config.Change
	require.NoError(t, json.Unmarshal([]byte(out), &changes))
	require.Len(t, changes, 8)
	for _, c := range changes {
		want := ""
		if c.Key == "journal.max_group_bytes" {
			want = "needs a restart"
		}
		require.Equal(t, want, c.Refusal, c.Key)
		require.Contains(t, r.logs.String(), `"key":"`+c.Key+`"`)
	}
	require.Contains(t, r.logs.String(), `"msg":"setting changed","key":"gc.interval","from":"\"5m\"","to":"\"7m\""`)
	require.Contains(t, r.logs.String(), `"msg":"setting keeps its value","key":"journal.max_group_bytes"`)
	require.Contains(t, r.logs.String(), "\"level\":\"INFO\",\"msg\":\"admin call\"")
	effective := body(t, r.admin, "/api/v2/config")
	require.Contains(t, effective, `interval             = "7m"`)
	require.Contains(t, effective, `max_group_bytes      = "512KiB"`)
	require.Contains(t, body(t, r.admin, "/metrics"), fmt.Sprintf("bindery_in_flight_limit_bytes %d", 20<<20))

	// More memory than was divided at the start is refused; an error in the file changes nothing.
	r.write(anyDisk + "[limits]\nin_flight = \"100MiB\"\n[gc]\ninterval = \"7m\"\n")
	out, _, _ = line(t, "config", "reload", "--server", r.admin)
	require.Contains(t, out, "limits.in_flight: stays \"20MiB\" (the file says \"100MiB\"): it can be lowered")
	r.write(anyDisk + "[gc]\ninterval = \"1m\"\nminor = 3\nratee = \"1MiB\"\n")
	_, errs, code := line(t, "config", "reload", "--server", r.admin)
	require.Equal(t, exitFailed, code)
	require.Contains(t, errs, "gc.minor: is a table of settings")
	require.Contains(t, errs, "gc.ratee: no such setting")
	require.Contains(t, r.logs.String(), `"msg":"configuration not reloaded"`)
	require.Contains(t, body(t, r.admin, "/api/v2/config"), `interval             = "7m"`)

	// SIGHUP does the same.
	r.write(anyDisk + "[gc]\ninterval = \"9m\"\n")
	require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGHUP))
	require.Eventually(t, func() bool { return strings.Contains(r.logs.String(), `"from":"\"7m\"","to":"\"9m\""`) }, 30*time.Second, 5*time.Millisecond)
	require.Equal(t, exitOK, r.stop(), "%s", r.logs)
	fails(t, exitFailed, "no bindery answers at "+r.admin, "config", "reload", "--server", r.admin)
}

// body returns what a path of the admin server answers.
func body(t *testing.T, server, path string) string {
	t.Helper()
	var a adminCall
	b, err := a.do(context.Background(), "GET", "http://"+server+path, nil)
	require.NoError(t, err)
	return string(b)
}

func TestAdminAddress(t *testing.T) {
	for _, tc := range []struct{ listen, advertised, want string }{
		{"0.0.0.0:8000", "10.0.0.1:3181", "10.0.0.1:8000"},
		{":8000", "bk.example.org:3181", "bk.example.org:8000"},
		{"[::]:8000", "[2001:db8::1]:3181", "[2001:db8::1]:8000"},
		{"10.0.0.2:8000", "10.0.0.1:3181", "10.0.0.2:8000"},
		{"127.0.0.1:8000", "10.0.0.1:3181", ""},
		{"127.0.0.1:8000", "127.0.0.1:3181", "127.0.0.1:8000"},
		{"", "10.0.0.1:3181", ""},
		{"0.0.0.0:8000", "", ""},
	} {
		require.Equal(t, tc.want, adminAddress(tc.listen, tc.advertised), "%+v", tc)
	}
}

// TestClusterBookiesShowsTheAdminServer: what a bookie registers is what the column HTTP shows.
func TestClusterBookiesShowsTheAdminServer(t *testing.T) {
	r := newRunning(t, anyDisk)
	r.start("--set", "bookie.domain=/eu/rack7")
	var rows []struct{ ID, HTTP, Domain string }
	require.NoError(t, json.Unmarshal([]byte(succeeds(t, "cluster", "bookies", "--metadata", r.uri, "--output", "json")), &rows))
	require.Len(t, rows, 1)
	require.Equal(t, r.admin, rows[0].HTTP)
	require.Equal(t, "/eu/rack7", rows[0].Domain)
	require.Equal(t, exitOK, r.stop())
}

// TestDrainSeconds: a stop registers the bookie read-only first and serves on; a signal ends the waiting.
func TestDrainSeconds(t *testing.T) {
	r := newRunning(t, anyDisk)
	fails(t, bookie.ExitConfig, "--drain-seconds -1 is outside", "run", "--config", r.conf, "--drain-seconds", "-1")
	fails(t, bookie.ExitConfig, "--drain-seconds 3601 is outside", "standalone", "--data-dir", r.dir+"/x", "--drain-seconds", "3601")
	r.start("--drain-seconds", "600")
	require.NoError(t, os.WriteFile(r.dir+"/hello", []byte("hello"), 0o600))
	id := strings.TrimSpace(succeeds(t, "ledger", "write", "--metadata", r.uri, "--ensemble", "1", "--write-quorum", "1", "--ack-quorum", "1", r.dir+"/hello"))
	r.cancel()
	require.Eventually(t, func() bool {
		b, err := r.views.Bookies.Resolve(context.Background(), "b1")
		return err == nil && b.ReadOnly
	}, 30*time.Second, 5*time.Millisecond, "%s", r.logs)
	require.Contains(t, body(t, r.admin, "/api/v2/status"), `"phase": "stopping"`)
	require.Contains(t, r.logs.String(), "draining for 600 s; another signal ends it")
	require.Equal(t, "hello", succeeds(t, "ledger", "read", id, "--metadata", r.uri))
	require.Empty(t, r.ended)
	require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGTERM))
	select {
	case code := <-r.ended:
		require.Equal(t, exitOK, code, "%s", r.logs)
	case <-time.After(time.Minute):
		t.Fatal("the drain goes on")
	}
	r.cancel = nil
	require.Contains(t, r.logs.String(), "draining ended early")
	_, err := r.views.Bookies.Resolve(context.Background(), "b1")
	require.ErrorIs(t, err, metadata.ErrNotFound)
}

// TestInspectionOfTheWrongDirectory: a directory of another kind is an error, not an empty table.
func TestInspectionOfTheWrongDirectory(t *testing.T) {
	r := newRunning(t, anyDisk)
	for _, verb := range []string{"ls", "verify"} {
		succeeds(t, "journal", verb, r.dir+"/j")
		succeeds(t, "entrylog", verb, r.dir+"/l")
		fails(t, exitFailed, r.dir+"/l is the ledger directory of bookie b1 and holds no journal segments", "journal", verb, r.dir+"/l")
		fails(t, exitFailed, r.dir+"/j is the journal directory of bookie b1 and holds no entry logs", "entrylog", verb, r.dir+"/j")
		for _, kind := range []string{"journal", "entrylog"} {
			fails(t, exitFailed, "it has no current/", kind, verb, r.dir)
		}
	}
	bare := r.dir + "/bare"
	require.NoError(t, os.MkdirAll(bare+"/current", 0o750))
	fails(t, exitFailed, "it is not prepared (no current/FORMAT) and holds no journal segments (.jnl)", "journal", "ls", bare)
	fails(t, exitFailed, "holds no entry logs (.log)", "entrylog", "verify", bare)
}

// TestPermissionsAreConfiguration: what fails for want of a permission ends with 1, wherever it is met.
func TestPermissionsAreConfiguration(t *testing.T) {
	denied := &os.PathError{Op: "open", Path: "/x", Err: syscall.EACCES}
	require.Equal(t, bookie.ExitConfig, exitCode(exitIO(fmt.Errorf("data directory: %w", denied))))
	require.Equal(t, bookie.ExitIO, exitCode(exitIO(&os.PathError{Op: "open", Path: "/x", Err: syscall.EIO})))
}

// TestBookieLinesNameItOnce: no line of the log carries a key twice, and each of the bookie's says which one it is.
func TestBookieLinesNameItOnce(t *testing.T) {
	r := newRunning(t, anyDisk)
	r.start()
	require.Equal(t, exitOK, r.stop())
	seen := 0
	for l := range strings.Lines(r.logs.String()) {
		require.LessOrEqual(t, strings.Count(l, `"b1"`), 1, l)
		require.NotContains(t, l, `"id":"b1"`)
		if strings.Contains(l, `"bookie serves"`) || strings.Contains(l, `"bookie stopped"`) {
			require.Contains(t, l, `"bookie":"b1"`)
			seen++
		}
	}
	require.Equal(t, 2, seen)
}
