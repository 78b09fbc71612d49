package report

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/tools/iobench/compare"
	"github.com/binderylog/bindery/tools/iobench/result"
)

// slowed is the example's run on another host, every sync so many times as slow.
func slowed(t *testing.T, host string, factor float64) *result.Run {
	t.Helper()
	r := example(t)
	r.RunID, r.Environment.Host, r.Device.SerialHash = host, host, host
	c := &r.Chapters[0]
	r.Chapters = append([]result.Chapter{*c}, *r.Chapter(result.ChapterSustain, 1))
	r.Chapters[0].Cells, r.Chapters[0].Verdicts = c.Cells[:3], nil
	for i := range r.Chapters[0].Cells {
		cell := &r.Chapters[0].Cells[i]
		if cell.BlockBytes > 4096 {
			continue
		}
		h, err := cell.Latency.Decode()
		require.NoError(t, err)
		scaled := result.NewHistogram()
		for _, b := range h.Distribution() {
			if b.Count > 0 {
				require.NoError(t, scaled.RecordValues(int64(float64(b.From)*factor), b.Count))
			}
		}
		cell.Latency = result.NewLatency(scaled)
		cell.MBPerS /= factor
		for j := range cell.Rounds {
			rd := &cell.Rounds[j]
			rd.P50US, rd.P99US, rd.MaxUS, rd.MBPerS = rd.P50US*factor, rd.P99US*factor, rd.MaxUS*factor, rd.MBPerS/factor
		}
	}
	require.NoError(t, r.Validate())
	return r
}

// fleet is n alike disks and one odd one at the end.
func fleet(t *testing.T, n int) (runs []*result.Run) {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range n {
		f := 1 + 0.02*(2*rng.Float64()-1)
		if i == n-1 {
			f = 1.9
		}
		runs = append(runs, slowed(t, fmt.Sprintf("bookie-%02d", i), f))
	}
	return runs
}

func comparison(t *testing.T, runs []*result.Run, by compare.By, failIf string) string {
	t.Helper()
	c, err := compare.Runs(runs, by)
	require.NoError(t, err)
	var findings []compare.Finding
	if failIf != "" {
		cond, err := compare.ParseCondition(failIf)
		require.NoError(t, err)
		findings, err = c.Judge([]compare.Condition{cond})
		require.NoError(t, err)
	}
	var b bytes.Buffer
	require.NoError(t, WriteComparison(&b, c, findings, failIf != ""))
	return b.String()
}

func TestComparisonOfAFleet(t *testing.T) {
	page := comparison(t, fleet(t, 20), compare.ByModel, "outlier")
	require.Less(t, len(page), 400_000)
	contains(t, page, "nvme EXAMPLE NVME 960G")
	contains(t, page, "20 runs, against their median")
	require.Equal(t, 20, strings.Count(page, `viewBox="0 0 180 120"`), "a small chart for each run")
	first := regexp.MustCompile(`<figure class="odd"><figcaption>([^<]*)<`).FindStringSubmatch(page)
	require.NotNil(t, first)
	require.Equal(t, "bookie-19:/data/journal", first[1], "the odd one comes first")
	require.Equal(t, 1, strings.Count(page, `<figure class="odd">`))
	contains(t, page, "outlier: bookie-19:/data/journal: sync dsync/4096 p50: &#43;")
	contains(t, page, `class="dot outlier"`)
	require.False(t, strings.Contains(page, "NaN"))
}

func TestComparisonOfTwo(t *testing.T) {
	runs := []*result.Run{slowed(t, "a", 1), slowed(t, "b", 1.5)}
	runs[1].Environment.Kernel = "6.12.0"
	page := comparison(t, runs, compare.ByNothing, "p99+80%")
	contains(t, page, "No threshold of --fail-if was missed.")
	contains(t, page, "kernel: 6.12.0 (1), 6.8.0 (1)")
	require.Regexp(t, `<td class="worse">[0-9.]+ µs &#43;50 % worse</td>`, page[strings.Index(page, "The main figures"):][:2000])
	runs[1].Chapters = nil
	page = comparison(t, runs, compare.ByNothing, "")
	contains(t, page, "The runs have no figure in common.")
	require.False(t, strings.Contains(page, "No threshold"))
}

func TestComparisonEscapes(t *testing.T) {
	const evil = `<script>alert(1)</script>`
	runs := []*result.Run{slowed(t, "a", 1), slowed(t, evil, 1), slowed(t, "c", 1)}
	runs[1].Device.NotRepresentative, runs[1].Environment.Kernel = evil, evil
	runs[2].Complete = false
	page := comparison(t, runs, compare.ByNothing, "")
	require.Equal(t, 1, strings.Count(page, "<script"))
	contains(t, page, "PARTIAL: ended early")
}

// TestComparisonOfManyStaysSmall: a page about hundreds of disks has room, and says what it left out.
func TestComparisonOfManyStaysSmall(t *testing.T) {
	few := fleet(t, 10)
	var runs []*result.Run
	for i := range 450 {
		r := *few[i%9]
		if i == 449 {
			r = *few[9]
		}
		r.RunID, r.Environment.Host = fmt.Sprint(i), fmt.Sprintf("bookie-%04d", i)
		runs = append(runs, &r)
	}
	page := comparison(t, runs, compare.ByModel, "")
	require.Less(t, len(page), BytesMax)
	contains(t, page, "Shown: 120 of 450 runs")
	contains(t, page, "Drawn: 250 of 450 runs")
	contains(t, page, "400 of 450, those that stand apart first")
	contains(t, page, "bookie-0449")
}
