package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/tools/iobench/result"
)

// exampleOf is the schema's example, as if it had been made here, today, in dir.
func exampleOf(t *testing.T, dir string) *result.Run {
	t.Helper()
	runs, err := result.ReadFile("result/testdata/full.json")
	require.NoError(t, err)
	r := runs[0]
	r.Chapters, r.Warnings = nil, nil
	here := thisMachine()
	d, err := here.inspect(dir)
	require.NoError(t, err)
	r.Device, r.OtherDevices = *d, nil
	r.Device.NotRepresentative = ""
	r.Environment.Host, r.Environment.Kernel, r.ToolVersion = here.host, here.kernel, version
	r.StartedAt = time.Now().Add(-time.Hour).UTC()
	return r
}

// stage is a directory with a journal, a configuration and a result.
type stage struct {
	t      *testing.T
	dir    string
	config string
	result string
}

func newStage(t *testing.T) *stage {
	t.Helper()
	dir := t.TempDir()
	s := &stage{t, dir, filepath.Join(dir, "bindery.toml"), filepath.Join(dir, "run.json")}
	require.NoError(t, os.Mkdir(filepath.Join(dir, "journal"), 0o755))
	s.write(fmt.Sprintf(`# our bookie
[bookie]
id = "b1" # never change
[storage]
journal_dirs = [%q]

[journal]
io = "auto" # the wiki says why
# about segments
segment_size = "64MiB"
future = true
`, filepath.Join(dir, "journal")))
	return s
}

func (s *stage) write(text string) {
	require.NoError(s.t, os.WriteFile(s.config, []byte(text), 0o640))
}

func (s *stage) text() string {
	b, err := os.ReadFile(s.config)
	require.NoError(s.t, err)
	return string(b)
}

func (s *stage) save(runs ...*result.Run) {
	var b bytes.Buffer
	require.NoError(s.t, result.Encode(&b, runs...))
	require.NoError(s.t, os.WriteFile(s.result, b.Bytes(), 0o644))
}

func (s *stage) run(args ...string) (code int, stdout, stderr string) {
	var out, err bytes.Buffer
	code = execute(s.t.Context(), args, &out, &err)
	return code, out.String(), err.String()
}

func (s *stage) apply(args ...string) (code int, stdout, stderr string) {
	return s.run(append([]string{"apply", s.result, "--config", s.config}, args...)...)
}

// files lists what lies beside the configuration.
func (s *stage) files() (names []string) {
	entries, err := os.ReadDir(s.dir)
	require.NoError(s.t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// TestApplyLeavesWhatNothingSpeaksAgainst: a method that the rounds did not put before the others replaces none that an operator chose.
func TestApplyLeavesWhatNothingSpeaksAgainst(t *testing.T) {
	s := newStage(t)
	s.write(strings.Replace(s.text(), `io = "auto" # the wiki says why`, `io = "buffered" # do not touch`, 1))
	r := exampleOf(t, filepath.Join(s.dir, "journal"))
	r.Recommendation.Settings[0].WithinSpread = true
	s.save(r)
	code, _, stderr := s.apply()
	require.Zero(t, code, stderr)
	require.Contains(t, s.text(), "\nio = \"buffered\" # do not touch\n")
	require.Contains(t, s.text(), `max_group_bytes = "256KiB"`, "the others are applied")
	require.Contains(t, stderr, "left as it is: journal.io, for no other value is better than the spread of the rounds (dsync p99 71us")

	s.write(strings.Replace(s.text(), "io = \"buffered\" # do not touch\n", "", 1))
	code, _, stderr = s.apply()
	require.Zero(t, code, stderr)
	require.Contains(t, s.text(), `io = "dsync"`, "where nothing stands, the usual one comes")
}

func TestApply(t *testing.T) {
	s := newStage(t)
	before := s.text()
	r := exampleOf(t, filepath.Join(s.dir, "journal"))
	s.save(r)
	day := r.StartedAt.Format("2006-01-02")

	code, stdout, stderr := s.apply("--dry-run")
	require.Zero(t, code, stderr)
	require.Contains(t, stdout, "\n-io = \"auto\" # the wiki says why\n")
	require.Contains(t, stdout, "nothing was written (--dry-run)")
	require.Equal(t, before, s.text())
	require.Equal(t, []string{"bindery.toml", "journal", "run.json"}, s.files())

	code, stdout, stderr = s.apply()
	require.Zero(t, code, stderr)
	require.Equal(t, fmt.Sprintf(`# our bookie
[bookie]
id = "b1" # never change
[storage]
journal_dirs = [%q]

[journal]
# iobench %[2]s: dsync p99 71us vs fdatasync 118us, 9/9 rounds
io = "dsync" # the wiki says why
# about segments
segment_size = "64MiB"
future = true
max_group_wait = "0"  # iobench %[2]s: sync p50 34us; waiting costs more than it saves
max_group_bytes = "256KiB"  # iobench %[2]s: knee: p99 1.4x of 4KiB at 256KiB, 2.9x at 1MiB

[gc]
rate = "180MB/s"  # iobench %[2]s: journal p99 stays under the goal of 5ms up to here
`, filepath.Join(s.dir, "journal"), day), s.text())
	require.Contains(t, stdout, "in force after a restart: journal.io")
	require.Contains(t, stdout, "in force after `bindery config reload`: ")
	info, err := os.Stat(s.config)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o640), info.Mode().Perm(), "the mode stays")
	backups, err := filepath.Glob(s.config + ".bak-*")
	require.NoError(t, err)
	require.Len(t, backups, 1)
	kept, err := os.ReadFile(backups[0])
	require.NoError(t, err)
	require.Equal(t, before, string(kept))
	require.Contains(t, stdout, backups[0])

	code, stdout, _ = s.apply()
	require.Zero(t, code)
	require.Contains(t, stdout, "nothing to change")
	require.Len(t, s.files(), 4, "no second backup")
}

func TestApplyFollowsALink(t *testing.T) {
	s := newStage(t)
	s.save(exampleOf(t, filepath.Join(s.dir, "journal")))
	link := filepath.Join(s.dir, "link.toml")
	require.NoError(t, os.Symlink(s.config, link))
	code, _, stderr := s.run("apply", s.result, "--config", link)
	require.Zero(t, code, stderr)
	info, err := os.Lstat(link)
	require.NoError(t, err)
	require.Equal(t, os.ModeSymlink, info.Mode().Type())
	require.Contains(t, s.text(), `io = "dsync"`)
}

func TestApplyRefuses(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*result.Run)
		code   int
		want   string
		forced int
	}{
		{"another host", func(r *result.Run) { r.Environment.Host = "elsewhere" }, exitRefused, "the run is of host elsewhere", 0},
		{"another disk", func(r *result.Run) { r.Device.SerialHash = "0123456789ab" }, exitRefused, "which is not that of the journal here", 0},
		{"ended early", func(r *result.Run) { r.Complete = false }, exitRefused, "ended early", 0},
		{"not representative", func(r *result.Run) { r.Device.NotRepresentative = "memory" }, exitRefused, "NOT REPRESENTATIVE", exitRefused},
		{"stamped by a warning", func(r *result.Run) {
			r.Warnings = []result.Warning{{Code: result.WarnNotRepresentative, Severity: result.SeverityWarning, Text: "tmpfs"}}
		}, exitRefused, "NOT_REPRESENTATIVE: tmpfs", exitRefused},
		{"figures that must not be used", func(r *result.Run) {
			r.Warnings = []result.Warning{{Code: result.WarnNotDurable, Severity: result.SeverityError, Text: "nothing was synced"}}
		}, exitRefused, "nothing was synced", exitRefused},
		{"no settings", func(r *result.Run) { r.Recommendation = nil }, exitRefused, "recommends no settings", exitRefused},
		{"a setting of another version", func(r *result.Run) { r.Recommendation.Settings[0].Key = "oi" }, exitFailed, "no such setting", exitFailed},
		{"a value that the version does not take", func(r *result.Run) { r.Recommendation.Settings[0].Value = `"uring"` }, exitFailed, "nothing was changed", exitFailed},
		{"a value that is more than one", func(r *result.Run) { r.Recommendation.Settings[0].Value = `"dsync", x = 1` }, exitFailed, "is not a value", exitFailed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newStage(t)
			before := s.text()
			r := exampleOf(t, filepath.Join(s.dir, "journal"))
			tc.change(r)
			s.save(r)
			code, _, stderr := s.apply()
			require.Equal(t, tc.code, code, stderr)
			require.Contains(t, stderr, tc.want)
			require.Equal(t, before, s.text())
			require.Len(t, s.files(), 3)
			code, _, stderr = s.apply("--force")
			require.Equal(t, tc.forced, code, stderr)
			if tc.forced != 0 {
				require.Equal(t, before, s.text())
				require.Len(t, s.files(), 3)
			} else {
				require.Contains(t, stderr, "forced: ")
			}
		})
	}
}

func TestApplyWarns(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*result.Run)
		want   string
	}{
		{"old", func(r *result.Run) { r.StartedAt = time.Now().Add(-100 * 24 * time.Hour) }, "warning: the run is 100 days old"},
		{"from the future", func(r *result.Run) { r.StartedAt = time.Now().Add(48 * time.Hour) }, "a clock is wrong"},
		{"another kernel", func(r *result.Run) { r.Environment.Kernel = "2.4.0" }, "kernel 2.4.0"},
		{"another version", func(r *result.Run) { r.ToolVersion = "v0" }, "iobench v0"},
		{"low confidence", func(r *result.Run) { r.Recommendation.Confidence, r.Recommendation.Why = "low", "three rounds" }, "three rounds"},
		{"each kind of warning once", func(r *result.Run) {
			r.Warnings = []result.Warning{
				{Code: result.WarnNoisy, Severity: result.SeverityWarning, Text: "rounds differ widely"}, {Code: result.WarnNoisy, Severity: result.SeverityWarning, Text: "again"},
				{Code: result.WarnNoisy, Severity: result.SeverityInfo, Text: "not worth a word"}, {Code: result.WarnNotSteady, Severity: result.SeverityWarning, Text: "NOT STEADY: sync"},
			}
		}, "warning: NOISY: rounds differ widely (and 1 more of the kind)\nwarning: NOT STEADY: sync\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newStage(t)
			r := exampleOf(t, filepath.Join(s.dir, "journal"))
			tc.change(r)
			s.save(r)
			code, _, stderr := s.apply("--dry-run")
			require.Zero(t, code, stderr)
			require.Contains(t, stderr, tc.want)
		})
	}
}

// TestApplyChoosesTheJournalsRun among those of a fleet; a directory that is not there yet is known by its path.
func TestApplyChoosesTheJournalsRun(t *testing.T) {
	s := newStage(t)
	journal := filepath.Join(s.dir, "journal")
	mine, other := exampleOf(t, journal), exampleOf(t, journal)
	other.RunID, other.Environment.Host = "other", "elsewhere"
	s.save(other, mine)
	code, _, stderr := s.apply()
	require.Zero(t, code, stderr)

	s.save(mine, mine)
	code, _, stderr = s.apply()
	require.Equal(t, exitUsage, code)
	require.Contains(t, stderr, "--run says which one")
	code, _, stderr = s.apply("--run", "2")
	require.Zero(t, code, stderr)
	code, _, stderr = s.apply("--run", "3")
	require.Equal(t, exitUsage, code, stderr)

	require.NoError(t, os.Remove(journal))
	s.save(mine)
	code, _, stderr = s.apply()
	require.Zero(t, code, stderr)
	mine.Device.Dir = "/elsewhere"
	s.save(mine)
	code, _, stderr = s.apply()
	require.Equal(t, exitRefused, code, stderr)
}

func TestApplyWrongUse(t *testing.T) {
	s := newStage(t)
	s.save(exampleOf(t, filepath.Join(s.dir, "journal")))
	code, _, stderr := s.run("apply", s.result)
	require.Equal(t, exitUsage, code, stderr)
	code, _, stderr = s.run("apply", s.result, "--config", s.dir)
	require.Equal(t, exitFailed, code, stderr)
	require.Contains(t, stderr, "not a regular file")
	code, _, stderr = s.run("apply", s.result, "--config", filepath.Join(s.dir, "none"))
	require.Equal(t, exitFailed, code, stderr)
	s.write("[journal\n")
	code, _, stderr = s.apply()
	require.Equal(t, exitFailed, code)
	require.Contains(t, stderr, "not valid as it is")
}

// TestReplaceKeepsWhatChangedMeanwhile: somebody's edit between reading and writing is not lost.
func TestReplaceKeepsWhatChangedMeanwhile(t *testing.T) {
	s := newStage(t)
	text, info, err := readConfig(s.config)
	require.NoError(t, err)
	s.write("# other\n")
	_, err = replaceConfig(s.config, text, []byte("new"), info, time.Now())
	require.ErrorContains(t, err, "was changed meanwhile")
	require.Equal(t, "# other\n", s.text())
	require.Len(t, s.files(), 2)
}

func TestDiff(t *testing.T) {
	lines := func(from, to int) (s string) {
		for i := from; i <= to; i++ {
			s += fmt.Sprintf("line %d\n", i)
		}
		return s
	}
	var b strings.Builder
	require.NoError(t, writeDiff(&b, "f", []byte(lines(1, 5)+"old\n"+lines(6, 20)), []byte(lines(1, 5)+"new\nmore\n"+lines(6, 17)+lines(19, 20))))
	require.Equal(t, `--- f
+++ f
@@ -3,7 +3,8 @@
 line 3
 line 4
 line 5
-old
+new
+more
 line 6
 line 7
 line 8
@@ -16,6 +17,5 @@
 line 15
 line 16
 line 17
-line 18
 line 19
 line 20
`, b.String())
	b.Reset()
	require.NoError(t, writeDiff(&b, "f", nil, []byte("a\nb")))
	require.Equal(t, "--- f\n+++ f\n@@ -1,0 +1,2 @@\n+a\n+b\n", b.String())
}
