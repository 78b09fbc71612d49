package result

import (
	"bytes"
	"encoding/base64"
	"flag"
	"os"
	"strings"
	"testing"
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

var update = flag.Bool("update", false, "write testdata/full.json anew")

const golden = "testdata/full.json"

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestGolden: what this version reads it writes again byte for byte.
func TestGolden(t *testing.T) {
	if *update {
		var b bytes.Buffer
		require.NoError(t, Encode(&b, exampleRun(1)))
		require.NoError(t, os.WriteFile(golden, b.Bytes(), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	runs, err := ReadFile(golden)
	require.NoError(t, err)
	require.Len(t, runs, 1)
	var got bytes.Buffer
	require.NoError(t, Encode(&got, runs...))
	require.Equal(t, string(want), got.String())

	r := runs[0]
	require.Equal(t, "full", r.Command)
	require.Equal(t, "/data/journal", r.DeviceAt(0).Dir)
	require.Equal(t, "/data/ledgers", r.DeviceAt(1).Dir)
	require.Equal(t, r.Device.SerialHash, r.Device.Key())
	require.Nil(t, r.Chapter(ChapterRead, 0))
	cell := r.Chapter(ChapterSync, 0).Cell("dsync/4096")
	require.Equal(t, int64(9*250), cell.Latency.Count)
	require.Nil(t, r.Chapter(ChapterSync, 0).Cell("none"))
	require.True(t, r.HasWarning(WarnNotSteady))
	require.False(t, r.HasWarning(WarnThermal))
	require.Positive(t, r.WrittenBytes())
}

// TestSeveralRuns: files put one after another are a file.
func TestSeveralRuns(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, Encode(&b, exampleRun(1)))
	require.NoError(t, Encode(&b, exampleRun(2), exampleRun(3)))
	runs, err := Decode(&b)
	require.NoError(t, err)
	require.Len(t, runs, 3)
	require.Equal(t, "bookie-03", runs[2].Environment.Host)
	require.NotEqual(t, runs[0].Device.Key(), runs[1].Device.Key())
}

func TestDecodeRefuses(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, Encode(&b, exampleRun(1)))
	good := b.String()
	for _, tc := range []struct{ name, text, want string }{
		{"nothing", "", "no run"},
		{"no JSON", "{", "unexpected EOF"},
		{"another document", `{"a":1}`, "names no schema"},
		{"another schema", `{"schema":"iobench/2"}`, `schema "iobench/2"`},
		{"unknown field", strings.Replace(good, `"command"`, `"komand"`, 1), "unknown field"},
		{"a second one", good + `{"schema":"x"}`, "run 2"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Decode(strings.NewReader(tc.text))
			require.ErrorContains(t, err, tc.want)
		})
	}
	var schema *SchemaError
	_, err := Decode(strings.NewReader(`{"schema":"iobench/2"}`))
	require.ErrorAs(t, err, &schema)
	require.Equal(t, "iobench/2", schema.Got)
}

func TestValidate(t *testing.T) {
	for _, tc := range []struct {
		name, where string
		change      func(r *Run)
	}{
		{"no directory", "device", func(r *Run) { r.Device.Dir = "" }},
		{"role", "device", func(r *Run) { r.Device.Role = "spare" }},
		{"device of a chapter", "chapters[0]", func(r *Run) { r.Chapters[0].Device = 2 }},
		{"device of a background", "chapters[0].cells[0]", func(r *Run) { r.Chapters[0].Cells[0].BackgroundDevice = 2 }},
		{"two cells of one id", "chapters[0].cells[1]", func(r *Run) { r.Chapters[0].Cells[1].ID = r.Chapters[0].Cells[0].ID }},
		{"durable by no method", "chapters[0].cells[0]", func(r *Run) { r.Chapters[0].Cells[0].Method = "" }},
		{"a percentile that its histogram denies", "chapters[0].cells[0].latency", func(r *Run) { r.Chapters[0].Cells[0].Latency.P99US++ }},
		{"a count that its histogram denies", "chapters[0].cells[0].latency", func(r *Run) { r.Chapters[0].Cells[0].Latency.Count++ }},
		{"a broken histogram", "chapters[0].cells[0].latency", func(r *Run) { r.Chapters[0].Cells[0].Latency.Histogram = "AAAA" }},
		{"a round upside down", "chapters[0].cells[0].rounds[0]", func(r *Run) { r.Chapters[0].Cells[0].Rounds[0].P50US = 1e9 }},
		{"a loop", "chapters[0].cells[0]", func(r *Run) { r.Chapters[0].Cells[0].Loop = "" }},
		{"more rounds won than run", "chapters[0].verdicts[0]", func(r *Run) { r.Chapters[0].Verdicts[0].RoundsWon = 10 }},
		{"a verdict on nothing", "chapters[0].verdicts[0]", func(r *Run) { r.Chapters[0].Verdicts[0].Best = "none" }},
		{"columns", "chapters[8].series[0]", func(r *Run) { r.Chapters[8].Series[0].MBPerS = nil }},
		{"a series of nothing", "chapters[8].series[0]", func(r *Run) { r.Chapters[8].Series[0].Cell = "none" }},
		{"a stall of nothing", "chapters[9].stalls[0]", func(r *Run) { r.Chapters[9].Stalls[0].Cell = "none" }},
		{"severity", "warnings[0]", func(r *Run) { r.Warnings[0].Severity = "loud" }},
		{"confidence", "recommendation", func(r *Run) { r.Recommendation.Confidence = "" }},
		{"a setting without evidence", "recommendation.settings[0]", func(r *Run) { r.Recommendation.Settings[0].Evidence = "" }},
		{"a setting that brings a second line", "recommendation.settings[0]", func(r *Run) { r.Recommendation.Settings[0].Evidence = "a\nb" }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			runs, err := ReadFile(golden)
			require.NoError(t, err)
			r := runs[0]
			tc.change(r)
			var e *InvalidError
			require.ErrorAs(t, r.Validate(), &e)
			require.Equal(t, tc.where, e.Where)
			require.Error(t, Encode(&bytes.Buffer{}, r), "what is not valid is not written")
		})
	}
}

// TestHistogramText: the text is what any reader of HdrHistogram V2 takes, coded in base64 once.
func TestHistogramText(t *testing.T) {
	h := NewHistogram()
	for i := range 1000 {
		Record(h, time.Duration(i)*time.Microsecond)
	}
	Record(h, time.Hour) // off the scale: counts as its end
	l := NewLatency(h)
	require.Equal(t, int64(1001), l.Count)
	require.InEpsilon(t, 500.0, l.P50US, 0.01)
	require.InEpsilon(t, 600e6, l.MaxUS, 0.01)
	raw, err := base64.StdEncoding.DecodeString(l.Histogram)
	require.NoError(t, err)
	require.Equal(t, []byte{0x1c, 0x84, 0x93, 0x14}, raw[:4], "the cookie of a compressed V2 histogram")
	back, err := l.Decode()
	require.NoError(t, err)
	require.True(t, back.Equals(h))
	require.Nil(t, NewLatency(NewHistogram()))
	require.Nil(t, NewLatency(nil))
}

// TestHistogramOfAnotherFormIsRefused before its counts are allocated.
func TestHistogramOfAnotherFormIsRefused(t *testing.T) {
	wide := hdr.New(1, 1<<62, 5)
	require.NoError(t, wide.RecordValue(1))
	text, err := wide.Encode(hdr.V2CompressedEncodingCookieBase)
	require.NoError(t, err)
	l := Latency{Count: 1, Histogram: string(text)}
	_, err = l.Decode()
	require.ErrorContains(t, err, "with 5 digits")
	l.Histogram = strings.Repeat("A", histogramTextMax+1)
	_, err = l.Decode()
	require.ErrorContains(t, err, "characters")
}

func FuzzDecode(f *testing.F) {
	if b, err := os.ReadFile(golden); err == nil {
		f.Add(b[:min(len(b), 64<<10)])
	}
	small := exampleRun(1)
	small.Chapters = small.Chapters[1:2]
	small.Chapters[0].Cells = small.Chapters[0].Cells[:1]
	small.Chapters[0].Verdicts = nil
	var b bytes.Buffer
	require.NoError(f, Encode(&b, small))
	f.Add(b.Bytes())
	f.Add([]byte(`{"schema":"iobench/1"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		runs, err := Decode(bytes.NewReader(data))
		if err != nil {
			return
		}
		var first, second bytes.Buffer
		require.NoError(t, Encode(&first, runs...))
		again, err := Decode(bytes.NewReader(first.Bytes()))
		require.NoError(t, err)
		require.NoError(t, Encode(&second, again...))
		require.Equal(t, first.String(), second.String())
	})
}

func TestBriefWarnings(t *testing.T) {
	r := &Run{Warnings: []Warning{
		{Code: WarnMountOptions, Text: "discard"}, {Code: WarnMountOptions, Text: "discard", Device: 1}, {Code: WarnNotSteady, Chapter: "sync", Text: "sync a"},
		{Code: WarnNoisy, Chapter: "sync", Text: "noisy sync"}, {Code: WarnNotSteady, Chapter: "alloc", Text: "alloc b"}, {Code: WarnNoisy, Chapter: "read", Text: "noisy read"},
		{Code: WarnNotSteady, Chapter: "read", Cell: "x", Text: "read c"},
	}}
	var texts []string
	for _, w := range r.BriefWarnings() {
		texts = append(texts, w.Text)
	}
	require.Equal(t, []string{"discard", briefly[WarnNotSteady] + ": sync, alloc, read", "noisy sync", "noisy read"}, texts)
	require.Len(t, r.Warnings, 7, "all of them are in the result")
}
