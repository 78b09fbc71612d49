package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/bookie"
	"github.com/binderylog/bindery/internal/config"
	"github.com/binderylog/bindery/internal/vfs"
	"github.com/binderylog/bindery/offload"
)

// cli runs one command line in this process.
func cli(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = execute(context.Background(), args, &out, &errs)
	return code, out.String(), errs.String()
}

func TestUsageErrors(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("BINDERY_METADATA__URI", "")
	for _, tc := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"ledgr"}, 2, `did you mean "ledger"`},
		{[]string{"ledger", "wirte"}, 2, `did you mean "write"`},
		{[]string{"ledger", "read"}, 2, "bindery: ID is missing (usage: bindery ledger read ID [flags])"},
		{[]string{"ledger", "read", "1", "2"}, 2, `"2" is one argument too many`},
		{[]string{"entrylog", "info", "."}, 2, "LOG is missing (usage: bindery entrylog info DIR LOG"},
		{[]string{"ledger", "read", "12", "--nope"}, 2, "unknown flag"},
		{[]string{"ledger", "read", "0b11"}, 2, "no ledger id"},
		{[]string{"ledger", "read", "1", "--format", "xml"}, 2, "neither raw nor json"},
		{[]string{"ledger", "read", "1", "--from", "5", "--to", "3"}, 2, "no range"},
		{[]string{"ledger", "tail", "1", "-n", "-5"}, 2, "--last -5: must be 0 or more"},
		{[]string{"ledger", "tail", "1", "--from", "-2"}, 2, "--from -2: entries count from 0"},
		{[]string{"ledger", "ls", "--output", "yaml"}, 2, "neither table nor json"},
		{[]string{"ledger", "ls"}, 2, "no cluster is named"},
		{[]string{"ledger", "ls", "--metadata", "ftp://x"}, 2, "ftp://x"},
		{[]string{"bench", "cluster", "--size", "1"}, 2, "no unit"},
		{[]string{"bench", "cluster", "--rate", "-1"}, 2, "outside"},
		{[]string{"status"}, 2, "no process is named"},
		{[]string{"status", "--server", "127.0.0.1:1"}, 1, "no bindery answers at 127.0.0.1:1, the host:port of its http.listen: nothing listens there"},
		{[]string{"standalone", "extra"}, 1, `"extra" is not expected: it takes no arguments (usage: bindery standalone`},
		{[]string{"config", "explain", "stor"}, 2, "the sections are run, bookie, metadata, storage"},
		{[]string{"config", "explain"}, 2, "name a setting"},
		{[]string{"config", "explain", "storage.memroy"}, 2, "did you mean storage.memory"},
	} {
		code, stdout, stderr := cli(tc.args...)
		require.Equal(t, tc.code, code, "%v: %s", tc.args, stderr)
		require.Empty(t, stdout, "%v", tc.args)
		require.Contains(t, stderr, tc.want, "%v", tc.args)
		require.Equal(t, 1, strings.Count(stderr, "\n"), "one line: %q", stderr)
	}
	for _, args := range [][]string{{}, {"ledger"}, {"config"}, {"help", "run"}, {"completion", "bash"}, {"version"}, {"--version"}, {"config", "explain", "journalDirectories"}, {"version", "--output", "json"}} {
		code, stdout, stderr := cli(args...)
		require.Equal(t, 0, code, "%v: %s", args, stderr)
		require.NotEmpty(t, stdout)
	}
}

func TestConfigCommands(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	write := func(name, text string) { require.NoError(t, os.WriteFile(name, []byte(text), 0o600)) }
	write("good.toml", "[metadata]\nuri = \"etcd://h:1/ledgers\"\n[placement]\nrack_source = \"script:/r\"\n")
	write("bad.toml", "[metadata]\nuri = \"etcd://h:1/ledgers\"\n[gc]\nintervall = \"1m\"\nrate = 5\nmajor = { below = 2.0 }\n")
	code, stdout, stderr := cli("config", "check", "good.toml")
	require.Equal(t, 0, code, stderr)
	require.Equal(t, "ok, 1 warning\n", stdout)
	require.Contains(t, stderr, "placement.rack_source: has no effect")
	write("empty.toml", "# nothing is set\n[storage]\n")
	code, _, stderr = cli("config", "check", "empty.toml")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "metadata.uri: is not set")
	for _, file := range []string{"empty.toml", os.DevNull} { // the one required setting may come from elsewhere
		code, stdout, stderr = cli("config", "check", file, "--set", "metadata.uri=etcd://h:1/ledgers")
		require.Equal(t, 0, code, stderr)
		require.Equal(t, "ok, 0 warnings, but "+file+" sets nothing: every value is a default, or comes from the environment or --set\n", stdout)
	}
	code, stdout, stderr = cli("config", "check", "bad.toml")
	require.Equal(t, 1, code)
	require.Empty(t, stdout)
	require.Equal(t, 3, strings.Count(stderr, "\n"), stderr)
	code, stdout, _ = cli("config", "check", "bad.toml", "--output", "json")
	require.Equal(t, 1, code)
	var checked struct {
		OK       bool `json:"ok"`
		Problems []struct{ Key, Message string }
	}
	require.NoError(t, json.Unmarshal([]byte(stdout), &checked))
	require.False(t, checked.OK)
	require.Equal(t, "gc.intervall", checked.Problems[0].Key)

	code, stdout, _ = cli("config", "show", "good.toml", "--effective", "--all")
	require.Equal(t, 0, code)
	write("shown.toml", stdout)
	code, stdout, stderr = cli("config", "diff", "good.toml", "shown.toml")
	require.Equal(t, 5, code, stderr)
	require.NotContains(t, stdout, "metadata.uri")
	require.Contains(t, stdout, "storage.memory: \"auto\" ->")
	code, stdout, _ = cli("config", "diff", "good.toml", "good.toml")
	require.Equal(t, 0, code)
	require.Empty(t, stdout)
	_, stdout, _ = cli("config", "explain", "gc")
	require.Equal(t, 6, strings.Count(stdout, "default  "))
}

func collect(t *testing.T, split, input string) []string {
	t.Helper()
	s, err := newSplitter(strings.NewReader(input), split)
	require.NoError(t, err)
	var out []string
	for {
		e, err := s.next()
		if errors.Is(err, io.EOF) {
			require.Empty(t, e)
			return out
		}
		require.NoError(t, err)
		out = append(out, string(e))
	}
}

func TestSplitters(t *testing.T) {
	require.Equal(t, []string{"abcd", "efgh", "ij"}, collect(t, "4B", "abcdefghij"))
	require.Equal(t, []string{"abcd"}, collect(t, "4B", "abcd"))
	require.Empty(t, collect(t, "4B", ""))
	require.Empty(t, collect(t, "lines", ""))
	require.Equal(t, []string{"a\n", "\n", "b"}, collect(t, "lines", "a\n\nb"))
	require.Equal(t, []string{"a\r\n", "b\n"}, collect(t, "lines", "a\r\nb\n"))
	long := strings.Repeat("x", entryBytesMax+entryBytesMax/2) + "\nend"
	parts := collect(t, "lines", long)
	require.Equal(t, long, strings.Join(parts, ""), "a line beyond the limit is cut, not lost")
	require.Greater(t, len(parts), 2)
	for _, p := range parts {
		require.LessOrEqual(t, len(p), entryBytesMax)
	}
	for _, bad := range []string{"0B", "5MiB", "words", "0", "-1", "4194305", "5M", "1.5.2K", "K", ""} {
		_, err := newSplitter(strings.NewReader(""), bad)
		require.Error(t, err, bad)
	}
}

func FuzzSplittersLoseNothing(f *testing.F) {
	f.Add("a\nb", uint16(3))
	f.Add("\n\n", uint16(1))
	f.Fuzz(func(t *testing.T, input string, size uint16) {
		require.Equal(t, input, strings.Join(collect(t, "lines", input), ""))
		if size > 0 {
			require.Equal(t, input, strings.Join(collect(t, fmt.Sprintf("%dB", size), input), ""))
		}
	})
}

func TestProgressLine(t *testing.T) {
	p := &progress{total: 1000, start: time.Unix(0, 0)}
	p.add(250)
	require.Equal(t, "250 B of 1.0 kB (25 %)  125 B/s  ETA 6s", p.line(time.Unix(2, 0)))
	p.total = 0
	require.Equal(t, "250 B  125 B/s", p.line(time.Unix(2, 0)))
	var silent bytes.Buffer
	q := startProgress(&silent, 10, false)
	q.add(5)
	q.finish()
	require.Empty(t, silent.String(), "only a terminal sees progress")
	require.Equal(t, "1.50 GB", humanBytes(1_500_000_000))
}

// TestStatusLineElsewhere: where there is no terminal, a line now and then, and log lines as they come.
func TestStatusLineElsewhere(t *testing.T) {
	var out lockedBuffer
	var says atomic.Value
	says.Store("")
	s := startStatusLine(&out, time.Millisecond, func(time.Time) string { return says.Load().(string) })
	_, err := fmt.Fprintln(s, "a log line")
	require.NoError(t, err)
	require.Equal(t, "a log line\n", out.String())
	says.Store("3 of 4")
	require.Eventually(t, func() bool { return strings.Contains(out.String(), "3 of 4\n3 of 4\n") }, time.Minute, time.Millisecond)
	s.finish()
	require.NotContains(t, out.String(), "\x1b")
}

func TestRoundLine(t *testing.T) {
	require.Empty(t, roundLine(offload.Round{}, time.Unix(9, 0)))
	r := offload.Round{Ledgers: 4, Finished: 1, Total: 4000, Done: 1000, Since: time.Unix(0, 0)}
	require.Equal(t, "1 of 4 ledgers offloaded  1.0 kB of 4.0 kB (25 %)  100 B/s  ETA 30s", roundLine(r, time.Unix(10, 0)))
}

func TestTableAlignsNumbers(t *testing.T) {
	var b strings.Builder
	require.NoError(t, printTable(&b, []string{">ID", "NAME"}, [][]string{{"1", "a"}, {"1000", "bb"}}))
	require.Equal(t, "  ID  NAME\n   1  a\n1000  bb\n", b.String())
}

func TestEndpointsFile(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv("BINDERY_METADATA__URI", "")
	data := filepath.Join(dir, defaultDataDir)
	require.NoError(t, os.Mkdir(data, 0o700))
	want := endpoints{PID: os.Getpid(), Metadata: "etcd://127.0.0.1:5/ledgers", Bookies: []string{"127.0.0.1:6"}, Admin: "http://127.0.0.1:7"}
	require.NoError(t, writeEndpoints(data, want))
	got, err := readEndpoints(data)
	require.NoError(t, err)
	require.Equal(t, want, got)
	uri, err := metadataURI("")
	require.NoError(t, err)
	require.Equal(t, want.Metadata, uri)
	t.Setenv("BINDERY_METADATA__URI", "etcd://env/ledgers")
	uri, _ = metadataURI("")
	require.Equal(t, "etcd://env/ledgers", uri)
	uri, _ = metadataURI("etcd://flag/ledgers")
	require.Equal(t, "etcd://flag/ledgers", uri)

	t.Setenv("BINDERY_METADATA__URI", "")
	want.PID = 1 << 22 // beyond the kernel's largest
	require.NoError(t, writeEndpoints(data, want))
	_, err = metadataURI("")
	require.ErrorContains(t, err, "which is gone")
	require.NoError(t, os.WriteFile(filepath.Join(data, endpointsName), []byte("{"), 0o600))
	_, err = metadataURI("")
	require.ErrorContains(t, err, "is damaged")
	require.NoError(t, removeEndpoints(data))
	require.NoError(t, removeEndpoints(data))
}

func loaded(t *testing.T, set ...string) *config.Loaded {
	t.Helper()
	l, err := config.Load(config.Options{Set: append([]string{"metadata.uri=etcd://h:1/ledgers"}, set...)})
	require.NoError(t, err)
	return l
}

func TestPlanRun(t *testing.T) {
	p, err := planRun(loaded(t, "bookie.id=b1", "bookie.listen=127.0.0.1:3181"), true)
	require.NoError(t, err)
	require.Nil(t, p.member)
	require.Equal(t, "127.0.0.1:3181", p.bookies[0].advertised, "a loopback address that was asked for is used")
	require.True(t, p.bookies[0].readOnly)
	require.False(t, p.bookies[0].prepare, "run never prepares anything")

	p, err = planRun(loaded(t, "run.roles=metadata", "metadata.uri=", "metadata.server.listen=0.0.0.0:2379"), false)
	require.NoError(t, err)
	require.Empty(t, p.bookies)
	require.Equal(t, "etcd://127.0.0.1:2379/ledgers", p.uri)

	p, err = planRun(loaded(t, "run.roles=metadata", "metadata.server.peers=m1=127.0.0.1:2380,m2=192.0.2.1:2380"), false)
	require.NoError(t, err)
	require.Equal(t, "m1", p.member.Name)
	require.Equal(t, "http://127.0.0.1:2380", p.member.PeerURL)
	require.Equal(t, "m1=http://127.0.0.1:2380,m2=http://192.0.2.1:2380", p.member.Cluster)
	for uri, named := range map[string]bool{
		"": true, "etcd://127.0.0.1:2379/ledgers": true, "etcd://192.0.2.1:2379;localhost:2379/ledgers": true, "etcd://m1.example:2379/ledgers": true,
		"metadata-store:etcd:http://127.0.0.1:2379": true,
		"etcd://127.0.0.1:2400/ledgers":             false, "etcd://192.0.2.1:2379/ledgers": false, "zk://127.0.0.1:2379/ledgers": false,
	} {
		err := checkOwnMetadata(uri, "0.0.0.0:2379")
		require.Equal(t, named, err == nil, "%s: %v", uri, err)
	}
	require.ErrorContains(t, checkOwnMetadata("etcd://127.0.0.1:2400/ledgers", "0.0.0.0:2379"), "does not name")
	_, err = planRun(loaded(t, "run.roles=metadata", "metadata.server.peers=m2=192.0.2.1:2380"), false)
	require.ErrorContains(t, err, "none of")

	listen, advertised, err := addresses(config.Bookie{Listen: "%lo:3181"})
	require.NoError(t, err)
	require.Equal(t, "127.0.0.1:3181", listen)
	require.Equal(t, listen, advertised)
	_, advertised, err = addresses(config.Bookie{Listen: "0.0.0.0:3181", AdvertisedAddress: "node7.example"})
	require.NoError(t, err)
	require.Equal(t, "node7.example:3181", advertised)
	_, _, err = addresses(config.Bookie{Listen: "%nosuch0:3181"})
	require.ErrorContains(t, err, "interface nosuch0")
}

func TestStandaloneLayout(t *testing.T) {
	dir := t.TempDir()
	o := standaloneOptions{ports: "auto"}
	first, err := o.layout(dir)
	require.NoError(t, err)
	require.Len(t, first.Bookies, 3)
	ports := map[int]bool{first.Admin: true, first.Metadata: true, first.MetadataPeer: true}
	for _, p := range first.Bookies {
		ports[p] = true
	}
	require.Len(t, ports, 6, "all different")
	again, err := o.layout(dir)
	require.NoError(t, err)
	require.Equal(t, first, again)
	o.bookies = 5
	more, err := o.layout(dir)
	require.NoError(t, err)
	require.Equal(t, first.Bookies, more.Bookies[:3])
	require.Len(t, more.Bookies, 5)
	o.bookies = 2
	_, err = o.layout(dir)
	require.ErrorContains(t, err, "has 5 bookies")
	o = standaloneOptions{ports: "7000"}
	based, err := o.layout(dir)
	require.NoError(t, err)
	require.Equal(t, layout{1, []int{7003, 7004, 7005, 7006, 7007}, 7000, 7001, 7002}, based)

	require.NoError(t, os.WriteFile(filepath.Join(dir, standaloneName), []byte("["), 0o600))
	_, err = o.layout(dir)
	require.Equal(t, bookie.ExitFormat, exitCode(err))
	p := planStandalone("/d", first, 2)
	require.Equal(t, "standalone-2", p.bookies[1].id)
	require.Equal(t, []string{"/d/bookie-2/journal"}, p.bookies[1].journalDirs)
	require.Equal(t, []string{"/domain-1", "/domain-2", "/domain-1"}, []string{p.bookies[0].domain, p.bookies[1].domain, p.bookies[2].domain})
	require.Empty(t, planStandalone("/d", first, 0).bookies[0].domain)
}

func TestStandaloneRefusesBeforeItWrites(t *testing.T) {
	t.Chdir(t.TempDir())
	entries := func(dir string) (names []string) {
		list, err := os.ReadDir(dir)
		require.NoError(t, err)
		for _, e := range list {
			names = append(names, e.Name())
		}
		return names
	}
	require.NoError(t, os.MkdirAll("docs/a", 0o700))
	fails(t, bookie.ExitConfig, `holds "a" and is no data directory`, "standalone", "--data-dir", "docs")
	require.Equal(t, []string{"a"}, entries("docs"))

	require.NoError(t, os.MkdirAll("old/bookie-1", 0o700))
	require.NoError(t, os.WriteFile("old/standalone.json", []byte("{}"), 0o600))
	fails(t, bookie.ExitIdentity, "old/metadata is missing", "standalone", "--data-dir", "old")
	require.Equal(t, []string{"bookie-1", "standalone.json"}, entries("old"))
	require.NoError(t, os.Remove("old/bookie-1"))
	require.NoError(t, refuseForeign("old"), "a first start that was cut off")

	require.Equal(t, []string{"old/bookie-1", "old/bookie-2"}, missingBookies("old", layout{Bookies: []int{1, 2}}))
	err := explainMissing(exit(bookie.ExitLocked, errors.New("--accept-loss")), []string{"old/bookie-1"})
	require.Equal(t, bookie.ExitLocked, exitCode(err))
	require.ErrorContains(t, err, "old/bookie-1 is missing")
	require.NotContains(t, err.Error(), "accept-loss")
	require.NoError(t, explainMissing(nil, []string{"old/bookie-1"}))
}

func TestStandaloneDefaults(t *testing.T) {
	t.Setenv("BINDERY_METADATA__URI", "etcd://other:1/ledgers") // of the client commands
	o := standaloneOptions{}
	l, err := o.load()
	require.NoError(t, err)
	require.EqualValues(t, 64<<20, l.Journal.SegmentSize)
	require.EqualValues(t, 64<<20, l.Expert.EntryLogSize)
	require.LessOrEqual(t, resolveStandalone(l, 3).Memory, int64(standaloneMemory))
	o.config.set = []string{"storage.memory=4GiB", "journal.segment_size=128MiB"}
	l, err = o.load()
	require.NoError(t, err)
	require.EqualValues(t, 4<<30, resolveStandalone(l, 3).Memory)
	require.EqualValues(t, 128<<20, l.Journal.SegmentSize)
	o.config.set = []string{"storage.ledger_dirs=/x"}
	_, err = o.load()
	require.ErrorContains(t, err, "standalone decides this itself")
}

func TestLockDataDirWaitsForADyingProcess(t *testing.T) {
	name := filepath.Join(t.TempDir(), "LOCK")
	held, err := vfs.OS().Lock(name)
	require.NoError(t, err)
	time.AfterFunc(200*time.Millisecond, func() { held.Close() })
	lock, err := lockDataDir(t.Context(), name)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = lockDataDir(ctx, name)
	require.ErrorIs(t, err, vfs.ErrLocked)
	require.NoError(t, lock.Close())
}

func TestExitCodesOfBookies(t *testing.T) {
	require.NoError(t, withBookieExit("b", nil))
	err := withBookieExit("b-1", &bookie.ExitError{Code: bookie.ExitIdentity, Err: errors.New("other cluster")})
	require.Equal(t, 10, exitCode(err))
	require.EqualError(t, err, "bookie b-1: other cluster")
	require.Equal(t, bookie.ExitIO, exitCode(withBookieExit("", errors.New("x"))))
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	_, err = net.Listen("tcp", ln.Addr().String())
	require.ErrorContains(t, portHint(err), "another process has "+ln.Addr().String())
	require.Equal(t, "a; b", oneLine(errors.New("a\nb")))
}

func TestAdminToken(t *testing.T) {
	name := filepath.Join(t.TempDir(), "token")
	_, err := adminToken(name)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, os.WriteFile(name, []byte(" \n"), 0o600))
	_, err = adminToken(name)
	require.ErrorContains(t, err, "holds no token")
	require.NoError(t, os.WriteFile(name, []byte("abc\n"), 0o600))
	token, err := adminToken(name)
	require.NoError(t, err)
	require.Equal(t, "abc", token)
}

func TestDemotedLogger(t *testing.T) {
	var b bytes.Buffer
	log, muted := newDemoted(newLogger(&b, slog.LevelInfo))
	log.Error("etcd: failed to update storage version")
	require.Empty(t, b.String(), "a new member says so, and means nothing by it")
	log.Warn("usual")
	require.Empty(t, b.String())
	log.With("k", "v").Error("trouble")
	require.Contains(t, b.String(), `"level":"WARN"`)
	b.Reset()
	muted.Store(true)
	log.Error("closing")
	require.Empty(t, b.String())
	require.False(t, log.Enabled(t.Context(), slog.LevelError))
}

func TestNotifier(t *testing.T) {
	name := filepath.Join(t.TempDir(), "n.sock")
	pc, err := (&net.ListenConfig{}).ListenPacket(t.Context(), "unixgram", name)
	require.NoError(t, err)
	defer pc.Close()
	t.Setenv("NOTIFY_SOCKET", name)
	t.Setenv("WATCHDOG_USEC", "40000")
	n := startNotifier(t.Context(), func() bool { return false })
	defer n.close()
	n.send("READY=1")
	buf := make([]byte, 64)
	for _, want := range []string{"READY=1", "WATCHDOG=1"} {
		k, _, err := pc.ReadFrom(buf)
		require.NoError(t, err)
		require.Equal(t, want, string(buf[:k]))
	}
}

func TestStatus(t *testing.T) {
	pages := map[string]string{
		"/api/v2/status":           `{"bookie":{"id":"a","phase":"serving","running":true},"bookies_in_process":2,"disks":[{"kind":"ledger","used_share":0.5,"available_bytes":1000}]}`,
		"/bookies/2/api/v2/status": `{"bookie":{"id":"b","phase":"replaying","replay":{"done_bytes":5,"total_bytes":20}},"bookies_in_process":2}`,
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, ok := pages[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		_, _ = io.WriteString(w, body)
	}))
	defer server.Close()
	defer http.DefaultClient.CloseIdleConnections()
	code, stdout, stderr := cli("status", "--server", strings.TrimPrefix(server.URL, "http://"))
	require.Equal(t, 5, code, stderr)
	require.Contains(t, stdout, "replaying 25 %")
	require.Contains(t, stdout, "50 %")
	pages["/bookies/2/api/v2/status"] = `{"bookie":{"id":"b","phase":"serving","running":true}}`
	code, stdout, _ = cli("status", "--server", server.URL)
	require.Equal(t, 0, code)
	require.Equal(t, 3, strings.Count(stdout, "\n"))
	pages["/api/v2/status"] = "<html>"
	code, _, stderr = cli("status", "--server", server.URL)
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "did not answer as a bindery process does")
	delete(pages, "/api/v2/status")
	code, _, stderr = cli("status", "--server", server.URL)
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "an HTTP server answers at "+strings.TrimPrefix(server.URL, "http://")+", but not the admin server of a bindery process (http.listen)")
}

// What hangs up on HTTP, or answers with something else, is named as far as it can be.
func TestStatusOfNoHTTPServer(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	answer := atomic.Pointer[string]{}
	answer.Store(new(string))
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = io.ReadFull(c, make([]byte, 8))
			_, _ = io.WriteString(c, *answer.Load())
			_ = c.Close()
		}
	}()
	_, _, stderr := cli("status", "--server", ln.Addr().String())
	require.Contains(t, stderr, "no bindery answers at "+ln.Addr().String()+", the host:port of its http.listen: what listens there hung up on an HTTP request")
	greeting := "SSH-2.0-OpenSSH_9.9\r\n"
	answer.Store(&greeting)
	_, _, stderr = cli("gc", "run", "--server", ln.Addr().String())
	require.Contains(t, stderr, "what listens there does not speak HTTP")
}

func TestRunExitCodes(t *testing.T) {
	fails(t, 1, "unknown flag", "run", "--frob")
	fails(t, 1, "usage: bindery standalone", "standalone", "extra")
	fails(t, 2, "usage: bindery ledger read ID", "ledger", "read")
}
