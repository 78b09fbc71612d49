package collect

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/binderylog/bindery/tools/iobench/result"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestParseHosts(t *testing.T) {
	hosts, err := ParseHosts(strings.NewReader("# fleet\n\nb1 /data/journal /data/ledgers # two disks\n  root@b2\t\nb3 /d\n"), []string{"/data/journal"})
	require.NoError(t, err)
	require.Equal(t, []Host{{"b1", []string{"/data/journal", "/data/ledgers"}}, {"root@b2", []string{"/data/journal"}}, {"b3", []string{"/d"}}}, hosts)
	for text, want := range map[string]string{
		"":                               "no host",
		"# only\n":                       "no host",
		"b1\n":                           "line 1: b1 has no directory",
		"b1 /d\nb1 /e\n":                 "line 2: b1 is there twice",
		"a:b /d\na_b /d\n":               "same file name",
		"-oProxyCommand=touch\t/tmp/x\n": `line 1: "-oProxyCommand=touch" is no host`,
		"b1;reboot /d\n":                 "is no host",
		"b1 journal\n":                   `"journal" is no absolute path`,
		"b1 -x\n":                        "no absolute path",
	} {
		_, err := ParseHosts(strings.NewReader(text), nil)
		require.ErrorContains(t, err, want, text)
	}
}

func TestQuote(t *testing.T) {
	o := Options{Remote: "/opt/io bench", Args: []string{"--label", "a=b c"}}
	require.Equal(t, `'/opt/io bench' quick --output json --label 'a=b c' -- /data/journal '/d/it'\''s'`, command(Host{"h", []string{"/data/journal", "/d/it's"}}, o))
	require.Equal(t, `''`, quote(""))
	require.Equal(t, "'é'", quote("é"))
}

func TestFileNames(t *testing.T) {
	for host, want := range map[string]string{"b1": "b1.json", "root@b2.example": "root@b2.example.json", "[::1]": "___1_.json", "..": "_.json"} {
		h := Host{Name: host}
		require.Equal(t, want, h.fileName())
	}
}

// fakeSSH is an ssh that answers by the name of the host, and writes down what it was asked.
const fakeSSH = `#!/bin/sh
echo "$@" >> "$FAKE_LOG"
while [ "$1" != "--" ]; do shift; done
case "$2" in
good*)    cat "$FAKE_RESULT" ;;
partial)  cat "$FAKE_PARTIAL"; echo "iobench: interrupted; what was measured is here" >&2; exit 4 ;;
refuses)  echo "iobench: /data is on tmpfs: memory" >&2; exit 3 ;;
unknown)  echo "ssh: Could not resolve hostname unknown" >&2; exit 255 ;;
missing)  echo "sh: iobench: not found" >&2; exit 127 ;;
motd)     echo "Welcome!"; cat "$FAKE_RESULT" ;;
empty)    ;;
colours)  printf 'first line\n\033[31mred\a alert\n' >&2; exit 1 ;;
hangs)    exec sleep 600 ;;
esac
`

// fake sets the stage and returns options that use it, and the log of what ssh was asked.
func fake(t *testing.T) (Options, string) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("a shell script plays ssh: runs on every system but Windows")
	}
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "ssh"), []byte(fakeSSH), 0o755))
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	runs, err := result.ReadFile("../result/testdata/full.json")
	require.NoError(t, err)
	r := runs[0]
	r.Chapters = r.Chapters[:1]
	r.Chapters[0].Cells, r.Chapters[0].Verdicts = r.Chapters[0].Cells[:1], nil
	r.Warnings = r.Warnings[:1]
	save := func(name string) {
		var b bytes.Buffer
		require.NoError(t, result.Encode(&b, r))
		file := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(file, b.Bytes(), 0o644))
		t.Setenv("FAKE_"+strings.ToUpper(name), file)
	}
	save("result")
	r.Complete = false
	save("partial")
	log := filepath.Join(dir, "log")
	t.Setenv("FAKE_LOG", log)
	out := filepath.Join(dir, "out")
	require.NoError(t, os.Mkdir(out, 0o755))
	return Options{SSH: "ssh", Remote: "iobench", Args: []string{"--duration", "20s"}, Timeout: time.Minute, Dir: out}, log
}

// TestGoesOnPastFailures: whatever a host does, the next one is asked, and the table says what came of each.
func TestGoesOnPastFailures(t *testing.T) {
	o, log := fake(t)
	var hosts []Host
	for _, n := range []string{"good-1", "unknown", "refuses", "missing", "motd", "empty", "colours", "partial", "good-2"} {
		hosts = append(hosts, Host{n, []string{"/data/journal"}})
	}
	var asked []string
	outcomes := Run(t.Context(), hosts, o, func(_ int, h Host) { asked = append(asked, h.Name) })
	require.Len(t, asked, len(hosts))
	want := map[string]string{
		"good-1": "", "good-2": "",
		"unknown": "ssh: Could not resolve hostname unknown",
		"refuses": "/data is on tmpfs: memory (exit 3)",
		"missing": "iobench is not there (--remote says where it is): sh: iobench: not found",
		"motd":    "its answer is no result: run 1: invalid character 'W' looking for beginning of value",
		"empty":   "answered nothing",
		"colours": "[31mred alert (exit 1)",
		"partial": "interrupted; what was measured is here (exit 4)",
	}
	for _, oc := range outcomes {
		if want[oc.Host] == "" {
			require.NoError(t, oc.Err, oc.Host)
			require.True(t, oc.OK())
		} else {
			require.EqualError(t, oc.Err, want[oc.Host], oc.Host)
			require.False(t, oc.OK())
		}
	}
	files, err := filepath.Glob(filepath.Join(o.Dir, "*"))
	require.NoError(t, err)
	require.Len(t, files, 3, "good-1, good-2, partial, and no scraps: %v", files)
	runs, err := result.ReadFile(filepath.Join(o.Dir, "partial.json"))
	require.NoError(t, err)
	require.False(t, runs[0].Complete)

	lines, err := os.ReadFile(log)
	require.NoError(t, err)
	require.Contains(t, string(lines), "-T -o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=15 -o ServerAliveCountMax=4 -- good-1 iobench quick --output json --duration 20s -- /data/journal\n")

	var b strings.Builder
	require.NoError(t, Print(&b, Rows(outcomes)))
	require.Regexp(t, `good-1 +ok +/data/journal +nvme EXAMPLE NVME 960G +dsync +35 µs +61.5 µs +A +0 +`, b.String())
	require.Regexp(t, `unknown +failed +- +- +- +- +- +- +0 +`, b.String())
	require.Regexp(t, `partial +partial +/data/journal`, b.String())
	require.Contains(t, b.String(), "\nrefuses: /data is on tmpfs: memory (exit 3)\n")
	require.NotContains(t, b.String(), "\033")
	require.NotContains(t, b.String(), "\a")
}

// TestHangingHost: it has its time, and no more.
func TestHangingHost(t *testing.T) {
	o, _ := fake(t)
	o.Timeout = 300 * time.Millisecond
	hang := Run(t.Context(), []Host{{"hangs", []string{"/d"}}}, o, func(int, Host) {})
	require.EqualError(t, hang[0].Err, "no answer within 300ms")
	require.Equal(t, "failed", Rows(hang)[0].Outcome)
}

// TestEndedEarly: what was gathered is there, the rest is named.
func TestEndedEarly(t *testing.T) {
	o, _ := fake(t)
	ctx, cancel := context.WithCancel(t.Context())
	outcomes := Run(ctx, []Host{{"good-1", []string{"/d"}}, {"hangs", []string{"/d"}}, {"good-2", []string{"/d"}}}, o, func(n int, _ Host) {
		if n == 1 {
			time.AfterFunc(100*time.Millisecond, cancel)
		}
	})
	rows := Rows(outcomes)
	require.Equal(t, []string{"ok", "failed", "not asked"}, []string{rows[0].Outcome, rows[1].Outcome, rows[2].Outcome})
	require.Equal(t, "the collecting was ended meanwhile", rows[1].Error)
	require.FileExists(t, outcomes[0].File)
}

// TestBounded keeps the first bytes of an answer and the last ones of complaints.
func TestBounded(t *testing.T) {
	first, last := &bounded{most: 5}, &bounded{most: 5, last: true}
	for _, s := range []string{"abc", "defg", "", "hijklmnop"} {
		n, err := first.Write([]byte(s))
		require.NoError(t, err)
		require.Equal(t, len(s), n)
		_, err = last.Write([]byte(s))
		require.NoError(t, err)
	}
	require.Equal(t, "abcde", first.b.String())
	require.True(t, first.over)
	require.Equal(t, "lmnop", last.b.String())
}
