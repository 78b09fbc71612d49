package report

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/binderylog/bindery/tools/iobench/result"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// document is the run that the schema's package keeps; it tests there that it is valid.
var document = sync.OnceValues(func() ([]byte, error) { return os.ReadFile("../result/testdata/full.json") })

// example is a fresh copy of that run.
func example(t *testing.T) *result.Run {
	t.Helper()
	data, err := document()
	require.NoError(t, err)
	var r result.Run
	require.NoError(t, json.Unmarshal(data, &r))
	return &r
}

func html(t *testing.T, runs ...*result.Run) string {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, Write(&b, runs))
	return b.String()
}

// contains fails without printing the page.
func contains(t *testing.T, page, want string) {
	t.Helper()
	require.True(t, strings.Contains(page, want), "the page lacks: %s", want)
}

// TestSelfContained: one page, nothing loaded, its one script allowed by its hash.
func TestSelfContained(t *testing.T) {
	page := html(t, example(t))
	require.Less(t, len(page), 300_000)
	require.Empty(t, regexp.MustCompile(`(?i)(src|href)="?(https?:)?//`).FindString(page))
	require.False(t, strings.Contains(page, "<link"), "<link")
	require.False(t, strings.Contains(page, "<img"), "<img")
	require.False(t, strings.Contains(page, "url("), "url(")
	require.False(t, strings.Contains(page, "@import"), "@import")
	scripts := regexp.MustCompile(`(?s)<script>(.*?)</script>`).FindAllStringSubmatch(page, -1)
	require.Len(t, scripts, 1)
	sum := sha256.Sum256([]byte(scripts[0][1]))
	hash := regexp.MustCompile(`script-src &#39;sha256-([^&]*)&#39;|script-src 'sha256-([^']*)'`).FindStringSubmatch(page)
	require.NotNil(t, hash)
	require.Equal(t, base64.StdEncoding.EncodeToString(sum[:]), strings.NewReplacer("&#43;", "+").Replace(hash[1]+hash[2]), "the browser runs the script only if its hash is the one that the page names")
	require.True(t, page == html(t, example(t)), "the same result, the same bytes")
}

func TestShowsWhatAReaderLooksFor(t *testing.T) {
	page := html(t, example(t))
	for _, want := range []string{
		"grade A", "290 MB/s", "310 ms",
		`max_group_bytes = &#34;256KiB&#34;  # knee: p99 1.4x of 4KiB at 256KiB, 2.9x at 1MiB`,
		`data-of="r1-snippet"`,
		"NOT DURABLE: no sync follows each write of direct/1",
		"Not measured: 512 (not tried",
		"No ranking, for the lead lies inside the spread of the rounds: method at 4096 bytes (by p99, dsync/4096 first in 6 of 9 rounds, spread 6 %).",
		"Method at 262144 bytes: dsync/262144 is ahead of fdatasync/262144, 1.5 times by p99, in 9 of 9 rounds",
		"520 MB/s for the first 36.4 GB, then 290 MB/s",
		"They come back about every 6.5 s",
		"Not part of this run: coupling.",
		"serial#9e3779b97f4a",
		`<caption>sync, /data/journal</caption>`,
		`<caption>sustain, /data/ledgers: sustain over time</caption>`,
		"What a bookie whose journal has this disk for itself is predicted to do",
	} {
		contains(t, page, want)
	}
	require.Equal(t, strings.Count(page, `<svg class="chart"`), strings.Count(page, `role="img"`), "every drawing has words for those who can not see it")
	require.False(t, strings.Contains(page, "NaN"), "NaN")
	ids := map[string]bool{}
	for _, m := range regexp.MustCompile(` id="([^"]*)"`).FindAllStringSubmatch(page, -1) {
		require.False(t, ids[m[1]], "id %q twice", m[1])
		ids[m[1]] = true
	}
	for _, m := range regexp.MustCompile(`(?:aria-labelledby|data-of)="([^"]*)"`).FindAllStringSubmatch(page, -1) {
		require.True(t, ids[m[1]], "id %q is nowhere", m[1])
	}
}

// TestMissing: what is not there is said to be not there, with the reason.
func TestMissing(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*result.Run)
		want   []string
	}{
		{"interrupted", func(r *result.Run) {
			r.Complete = false
			r.Chapters = r.Chapters[:2]
			r.Chapters[1].Complete = false
			r.Chapters[1].ElapsedS = 12
			r.Warnings = append(r.Warnings[:1], result.Warning{Code: result.WarnWriteCap, Severity: result.SeverityWarning, Chapter: result.ChapterSustain, Text: "the cap of --max-write was reached"})
			r.Recommendation = nil
		}, []string{
			"PARTIAL: this run was ended early. What is shown was measured. Not run: align, journals, bandwidth, read, interfere, sustain, stalls, metadata.",
			"INTERRUPTED after 12 s", "Not measured: planned, but the run ended before it.", "Not measured: the cap of --max-write was reached.", "No settings follow from this run.",
		}},
		{"nothing at all", func(r *result.Run) {
			r.Chapters, r.Recommendation, r.Complete = nil, nil, false
		}, []string{"Nothing was measured.", "No settings follow"}},
		{"not representative", func(r *result.Run) { r.Device.NotRepresentative = "memory, not a disk" }, []string{"NOT REPRESENTATIVE: /data/journal: memory, not a disk", "Not for use: <code>iobench apply</code> refuses this run."}},
		{"figures that must not be used", func(r *result.Run) {
			r.Warnings = append(r.Warnings, result.Warning{Code: result.WarnNotDurable, Severity: result.SeverityError, Text: "no method was durable"})
		}, []string{"NOT_DURABLE: no method was durable"}},
		{"a chapter of a newer kind", func(r *result.Run) { r.Chapters[0].Name = "levitate" }, []string{"This version has no drawing for it"}},
		{"a chapter without a cell", func(r *result.Run) {
			r.Chapters[1].Cells, r.Chapters[1].Verdicts, r.Chapters[1].Complete = nil, nil, false
		}, []string{"it ended before anything was measured"}},
		{"nothing works here", func(r *result.Run) {
			for i := range r.Chapters[0].Cells {
				c := &r.Chapters[0].Cells[i]
				*c = result.Cell{ID: c.ID, Op: c.Op, Method: c.Method, BlockBytes: c.BlockBytes, Loop: c.Loop, Durable: true, Unsupported: "invalid argument"}
			}
			r.Chapters[0].Verdicts = nil
		}, []string{"Not measured: dsync/4096 (invalid argument)", "nothing was measured"}},
		{"no idle figure", func(r *result.Run) {
			c := r.Chapter(result.ChapterInterfere, 0)
			c.Cells = c.Cells[1:6]
		}, []string{"no idle figure to compare with"}},
		{"a background at part of its speed, few operations", func(r *result.Run) {
			h := result.NewHistogram()
			for range 50 {
				result.Record(h, time.Millisecond)
			}
			c := r.Chapter(result.ChapterInterfere, 0)
			for i := range c.Cells {
				c.Cells[i].Latency = result.NewLatency(h)
			}
			c.Cells[3].ID += "/25"
		}, []string{">compaction at 25 %<"}},
		{"a size that was not measured", func(r *result.Run) { r.Recommendation.Settings[2].Value = `"4MiB"` }, []string{"4MiB, outside the sizes that were measured"}},
		{"few samples", func(r *result.Run) {
			h := result.NewHistogram()
			for range 5 {
				result.Record(h, time.Millisecond)
			}
			r.Chapters[0].Cells[0].Latency = result.NewLatency(h)
		}, []string{"<td>5</td><td>1000</td><td>1000</td><td>1000</td><td>–</td><td>–</td>"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := example(t)
			tc.change(r)
			require.NoError(t, r.Validate())
			page := html(t, r)
			for _, want := range tc.want {
				contains(t, page, want)
			}
			require.False(t, strings.Contains(page, "NaN"), "NaN")
		})
	}
}

// TestTextsAreEscaped wherever a result can bring them.
func TestTextsAreEscaped(t *testing.T) {
	const evil = `</pre><script>alert(1)</script>`
	r := example(t)
	r.Environment.Host, r.Device.Dir, r.Device.Model, r.ToolVersion = evil, evil, evil, evil
	r.Labels = map[string]string{evil: evil}
	r.Recommendation.Header = evil
	r.Recommendation.Settings[0].Evidence = evil
	r.Recommendation.Reasons = []string{evil}
	r.Warnings[0].Text, r.Warnings[0].Code = evil, evil
	c := &r.Chapters[1]
	for i := range c.Cells {
		c.Cells[i].ID = fmt.Sprint(evil, i)
		c.Cells[i].Method = evil
	}
	c.Verdicts = []result.Verdict{{Question: evil, Best: c.Cells[0].ID}}
	s := r.Chapter(result.ChapterSustain, 1)
	s.Cells[0].ID, s.Series[0].Cell = evil, evil
	require.NoError(t, r.Validate())
	page := html(t, r)
	require.Equal(t, 1, strings.Count(page, "<script"))
	require.False(t, strings.Contains(page, "<script>alert"), "<script>alert")
}

// TestLongSoakStaysSmall: a day of seconds is folded, the worst of them is kept.
func TestLongSoakStaysSmall(t *testing.T) {
	r := example(t)
	s := &r.Chapter(result.ChapterStalls, 0).Series[0]
	st := &r.Chapter(result.ChapterStalls, 0).Stalls[0]
	*s = result.Series{Cell: s.Cell, IntervalS: 1}
	st.Events = nil
	for i := range 86400 {
		s.Ops, s.MBPerS, s.P99US, s.MaxUS = append(s.Ops, 1000), append(s.MBPerS, 16), append(s.P99US, 70), append(s.MaxUS, 300)
		if i%20 == 0 {
			st.Events = append(st.Events, result.StallEvent{AtS: float64(i), GapUS: 20e3 + float64(i)})
		}
	}
	s.P99US[40_000] = 777_777
	require.NoError(t, r.Validate())
	page := html(t, r)
	require.Less(t, len(page), 600_000)
	contains(t, page, "Drawn: the 1500 longest.")
	contains(t, page, "<td>777777</td>") // the worst second is in the table
	contains(t, page, "latencies the worst of their seconds")
}

func TestTooManyRuns(t *testing.T) {
	var runs []*result.Run
	for range 12 {
		runs = append(runs, example(t))
	}
	var e *SizeError
	var b bytes.Buffer
	require.ErrorAs(t, Write(&b, runs), &e)
	require.Equal(t, 12, e.Runs)
	require.Zero(t, b.Len(), "half a page is none")
	contains(t, html(t, runs[:3]...), `<a href="#r3">`)
}

func TestSnippet(t *testing.T) {
	rec := example(t).Recommendation
	require.Equal(t, `# `+rec.Header+`
[journal]
io = "dsync"                # dsync p99 71us vs fdatasync 118us, 9/9 rounds
max_group_wait = "0"        # sync p50 34us; waiting costs more than it saves
max_group_bytes = "256KiB"  # knee: p99 1.4x of 4KiB at 256KiB, 2.9x at 1MiB
[gc]
rate = "180MB/s"            # journal p99 stays under the goal of 5ms up to here
`, Snippet(rec))
	require.Empty(t, Snippet(nil))
	require.Empty(t, Snippet(&result.Recommendation{Header: "x"}))
}
