package compare

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/binderylog/bindery/tools/iobench/result"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// disk makes a run whose durable writes take the given p50 in each of nine rounds, with a little noise of its own.
type disk struct {
	host   string
	model  string
	serial string
	day    int
	p50    float64 // us
	noise  float64 // of a round, as a share
	rounds int
	steady float64 // MB/s
}

func (d disk) run(t *testing.T) *result.Run {
	t.Helper()
	if d.rounds == 0 {
		d.rounds = 9
	}
	rng := rand.New(rand.NewPCG(uint64(len(d.host))+uint64(d.p50*1000), uint64(d.day)))
	r := &result.Run{
		Schema: result.Schema, RunID: fmt.Sprintf("%s-%s-%d-%v-%d", d.host, d.serial, d.day, d.p50, d.rounds), Command: "quick", Complete: true,
		StartedAt:   time.Date(2026, 1, 1+d.day, 12, 0, 0, 0, time.UTC),
		Environment: result.Environment{Host: d.host, Kernel: "6.8.0"},
		Device:      result.Device{Role: "journal", Dir: "/data", Kind: "nvme", Model: d.model, SerialHash: d.serial},
	}
	all := result.NewHistogram()
	c := result.Cell{ID: "dsync/4096", Op: "write", Method: "dsync", BlockBytes: 4096, Loop: "closed", Durable: true}
	for range d.rounds {
		h := result.NewHistogram()
		f := 1 + d.noise*(2*rng.Float64()-1)
		for i := range 200 {
			result.Record(h, time.Duration(d.p50*f*(1+float64(i)/400)*1e3))
		}
		all.Merge(h)
		us := func(q float64) float64 { return float64(h.ValueAtQuantile(q)) / 1e3 }
		c.Rounds = append(c.Rounds, result.Round{Ops: 200, P50US: us(50), P99US: us(99), MaxUS: us(100), MBPerS: 4096e3 / h.Mean()})
	}
	c.Latency = result.NewLatency(all)
	c.Ops, c.Bytes, c.MBPerS = c.Latency.Count, c.Latency.Count*4096, 4096/c.Latency.MeanUS
	r.Chapters = []result.Chapter{{Name: result.ChapterSync, Complete: true, Cells: []result.Cell{c}}}
	if d.steady > 0 {
		r.Chapters = append(r.Chapters, result.Chapter{Name: result.ChapterSustain, Sustained: &result.Sustain{SteadyMBPerS: d.steady}})
	}
	require.NoError(t, r.Validate())
	return r
}

func runsOf(t *testing.T, disks ...disk) (out []*result.Run) {
	for _, d := range disks {
		out = append(out, d.run(t))
	}
	return out
}

// row finds a figure of the first group.
func row(t *testing.T, c *Comparison, figure string) Row {
	t.Helper()
	for _, r := range c.Groups[0].Rows {
		if r.Figure.String() == figure {
			return r
		}
	}
	t.Fatalf("no figure %q", figure)
	return Row{}
}

func TestTwoRuns(t *testing.T) {
	for _, tc := range []struct {
		name string
		a, b disk
		want Verdict
	}{
		{"the same", disk{p50: 34, noise: 0.02}, disk{p50: 34, noise: 0.02, day: 1}, Same},
		{"five per cent, borne out by every round, is what two runs of one disk may differ by", disk{p50: 34}, disk{p50: 35.7}, Same},
		{"half as long again", disk{p50: 34, noise: 0.02}, disk{p50: 51, noise: 0.02}, Worse},
		{"faster", disk{p50: 51, noise: 0.02}, disk{p50: 34, noise: 0.02}, Better},
		{"half as long again, inside rounds that differ by more", disk{p50: 34, noise: 0.5}, disk{p50: 50, noise: 0.6}, Noise},
		{"too few rounds to say", disk{p50: 34, rounds: 3}, disk{p50: 68, rounds: 3}, Noise},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.a.host, tc.b.host = "a", "b"
			c, err := Runs(runsOf(t, tc.a, tc.b), ByNothing)
			require.NoError(t, err)
			r := row(t, c, "sync dsync/4096 p50")
			require.Equal(t, Base, r.Values[0].Verdict)
			require.Equal(t, tc.want, r.Values[1].Verdict, "%+v", r.Values[1])
			require.True(t, r.Headline)
		})
	}
}

// TestRatesAreBetterWhenHigher: the same change is worse for a time and better for a rate.
func TestRatesAreBetterWhenHigher(t *testing.T) {
	c, err := Runs(runsOf(t, disk{host: "a", p50: 34, steady: 500}, disk{host: "b", p50: 68, steady: 290}), ByNothing)
	require.NoError(t, err)
	require.Equal(t, Worse, row(t, c, "sync dsync/4096 mb_per_s").Values[1].Verdict)
	steady := row(t, c, "sustain steady_mb_per_s").Values[1]
	require.Equal(t, Unproven, steady.Verdict, "one figure without rounds")
	require.InDelta(t, -0.42, steady.Change, 0.001)
}

// fleet is a number of alike disks and one that is not.
func fleet(t *testing.T, n int, odd float64) []*result.Run {
	var out []*result.Run
	for i := range n {
		p50 := 34 + 0.1*float64(i%7)
		if i == n-1 {
			p50 = odd
		}
		out = append(out, disk{host: fmt.Sprintf("bookie-%02d", i), model: "M1", serial: fmt.Sprint(i), p50: p50, noise: 0.01, steady: 500}.run(t))
	}
	return out
}

func TestOddDiskOfAFleet(t *testing.T) {
	c, err := Runs(fleet(t, 48, 60), ByModel)
	require.NoError(t, err)
	require.Equal(t, "nvme M1", c.Groups[0].Name)
	r := row(t, c, "sync dsync/4096 p99")
	for i, v := range r.Values {
		require.Equal(t, i == 47, v.Outlier, "%d: %+v", i, v)
	}
	require.Greater(t, r.Values[47].Deviation, 3.0)
	require.Equal(t, Worse, r.Values[47].Verdict)
	require.Equal(t, Same, r.Values[0].Verdict)
	require.Positive(t, c.Groups[0].Members[47].Outliers)

	// One that lies 4 deviations off by 2 % is no odd disk.
	c, err = Runs(fleet(t, 48, 35.2), ByModel)
	require.NoError(t, err)
	near := row(t, c, "sync dsync/4096 p99")
	require.False(t, near.Notable())

	// Four are too few to know what is usual.
	c, err = Runs(fleet(t, 4, 60), ByModel)
	require.NoError(t, err)
	require.False(t, row(t, c, "sync dsync/4096 p99").Values[3].Outlier)
}

func TestGrouping(t *testing.T) {
	runs := runsOf(t,
		disk{host: "h1", model: "M1", serial: "s1", p50: 34, day: 9}, disk{host: "h1", model: "M2", serial: "s2", p50: 34},
		disk{host: "h2", model: "M1", serial: "s3", p50: 34}, disk{host: "h1", model: "M1", serial: "s1", p50: 68, day: 2},
	)
	names := func(by By) (out []string) {
		c, err := Runs(runs, by)
		require.NoError(t, err)
		for _, g := range c.Groups {
			line := g.Name + ":"
			for _, m := range g.Members {
				line += " " + strings.ReplaceAll(m.Name, " ", "@")
			}
			out = append(out, line)
		}
		return append(out, c.Alone...)
	}
	require.Equal(t, []string{"nvme M1: h1:/data@2026-01-10@12:00 h2:/data h1:/data@2026-01-03@12:00", "h1:/data"}, names(ByModel))
	require.Equal(t, []string{"h1: h1:/data@2026-01-10@12:00 h1:/data@2026-01-01@12:00 h1:/data@2026-01-03@12:00", "h2:/data"}, names(ByHost))
	require.Equal(t, []string{"s1 journal: h1:/data@2026-01-03@12:00 h1:/data@2026-01-10@12:00", "h1:/data", "h2:/data"}, names(ByDate), "the oldest first: it is the base")

	_, err := Runs(runs, "colour")
	require.ErrorContains(t, err, "none of model, host, date")
	_, err = Runs(runs[:1], ByNothing)
	require.ErrorContains(t, err, "at least two")
	_, err = Runs(runs[1:3], ByModel)
	require.ErrorContains(t, err, "no two runs have the same model")
	c, err := Runs(append(runs, runs[0]), ByNothing)
	require.NoError(t, err)
	require.Len(t, c.Groups[0].Members, 4)
	require.Len(t, c.Notes, 1, "a file that is named twice counts once")
}

// TestOnlyLikeWithLike: a figure that one run lacks is missing, one that only one has is no row, and what differs is said.
func TestOnlyLikeWithLike(t *testing.T) {
	runs := runsOf(t, disk{host: "a", p50: 34, steady: 500}, disk{host: "b", p50: 34}, disk{host: "c", p50: 34, steady: 480})
	runs[1].Environment.Kernel = "6.12.0"
	runs[1].Complete = false
	runs[2].Device.NotRepresentative = "memory"
	runs[2].Chapters[0].Cells[0].ID = "fdatasync/4096"
	c, err := Runs(runs, ByNothing)
	require.NoError(t, err)
	require.Equal(t, Missing, row(t, c, "sustain steady_mb_per_s").Values[1].Verdict)
	require.Equal(t, Missing, row(t, c, "sync dsync/4096 p50").Values[2].Verdict)
	for _, r := range c.Groups[0].Rows {
		require.NotContains(t, r.Figure.String(), "fdatasync")
	}
	require.Contains(t, c.Groups[0].Differs, "kernel: 6.8.0 (2), 6.12.0 (1)")
	require.Equal(t, []string{"PARTIAL: ended early"}, c.Groups[0].Members[1].Caveats)
	require.Equal(t, []string{"NOT REPRESENTATIVE: memory"}, c.Groups[0].Members[2].Caveats)
}

func TestConditions(t *testing.T) {
	slower := runsOf(t, disk{host: "a", p50: 34, noise: 0.02, steady: 500}, disk{host: "b", p50: 45, noise: 0.02, steady: 400})
	noisy := runsOf(t, disk{host: "a", p50: 34, noise: 0.6}, disk{host: "b", p50: 45, noise: 0.6})
	for _, tc := range []struct {
		name      string
		runs      []*result.Run
		by        By
		condition string
		want      []string
	}{
		{"missed", slower, ByNothing, "p99+20%", []string{"sync dsync/4096 p99"}},
		{"met", slower, ByNothing, "p99+50%", nil},
		{"the other way is no failure", slower, ByNothing, "p99-20%", nil},
		{"inside the noise", noisy, ByNothing, "p50+20%", nil},
		{"a rate", slower, ByNothing, "mb_per_s-20%", []string{"sync dsync/4096 mb_per_s"}},
		{"a figure without rounds", slower, ByNothing, "steady_mb_per_s-15%", []string{"sustain steady_mb_per_s"}},
		{"one cell", slower, ByNothing, "sync/dsync/*:p99+20%", []string{"sync dsync/4096 p99"}},
		{"one chapter", slower, ByNothing, "sync:p50+20%", []string{"sync dsync/4096 p50"}},
		{"everything", slower, ByNothing, "*:max+20%", []string{"sync dsync/4096 max"}},
		{"outliers", fleet(t, 12, 60), ByModel, "outlier", []string{"sync dsync/4096 p50", "sync dsync/4096 p99", "sync dsync/4096 p99.9", "sync dsync/4096 max", "sync dsync/4096 mb_per_s"}},
		{"no outliers", fleet(t, 12, 34), ByModel, "outlier", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cond, err := ParseCondition(tc.condition)
			require.NoError(t, err)
			c, err := Runs(tc.runs, tc.by)
			require.NoError(t, err)
			found, err := c.Judge([]Condition{cond})
			require.NoError(t, err)
			var got []string
			for _, f := range found {
				got = append(got, f.Figure)
				require.Equal(t, tc.condition, f.Condition)
			}
			require.Equal(t, tc.want, got)
		})
	}
	// What judges nothing must not pass for "all well".
	c, err := Runs(slower, ByNothing)
	require.NoError(t, err)
	for _, text := range []string{"interfere:p99+20%", "outlier", "sync/uring/*:p99+20%", "longest_gap+10%"} {
		cond, err := ParseCondition(text)
		require.NoError(t, err)
		_, err = c.Judge([]Condition{cond})
		require.Error(t, err, text)
	}
	for _, text := range []string{"", "p99", "p99+20", "p98+20%", "p99+0%", "p99+-3%", "p99>5ms", "[:p99+20%", "p99+20%%"} {
		_, err := ParseCondition(text)
		require.Error(t, err, text)
	}
}

// TestRankTest against values of the published tables of the test.
func TestRankTest(t *testing.T) {
	seq := func(from, n int) (out []float64) {
		for i := range n {
			out = append(out, float64(from+i))
		}
		return out
	}
	tables := rankTables{}
	require.InDelta(t, 2.0/252, tables.test(seq(0, 5), seq(10, 5)), 1e-12, "5 and 5 apart: 1 of 252 orders at each end")
	require.InDelta(t, 2.0/48620, tables.test(seq(10, 9), seq(0, 9)), 1e-12)
	require.InDelta(t, 1, tables.test(seq(0, 9), seq(0, 9)), 1e-12)
	require.InDelta(t, 1, tables.test(seq(0, 4), seq(10, 9)), 0, "four rounds are too few")
	// 9 against 9: u = 14 is beyond 2 %, u = 11 is the last within 1 %.
	total := 0.0
	for u, n := range orders(9, 9) {
		if u <= 11 {
			total += n
		}
	}
	require.Less(t, 2*total/48620, 0.01)
	require.InDelta(t, 48620, sum(orders(9, 9)), 0)
	long := tables.test(seq(0, 10_000), seq(5, 10_000))
	require.Greater(t, long, 0.8, "many rounds are thinned, not dropped")
}

func sum(v []float64) (s float64) {
	for _, x := range v {
		s += x
	}
	return s
}

func TestDeviations(t *testing.T) {
	mid, dev := deviations([]float64{1, 2, 3, 4, 100})
	require.InDelta(t, 3, mid, 0)
	require.InDelta(t, 97/1.4826, dev[4], 1e-9)
	_, dev = deviations([]float64{5, 5, 5, 5, 6})
	require.True(t, math.IsInf(dev[4], 1))
	require.Zero(t, dev[0])
	require.InDelta(t, 2.5, median([]float64{4, 1, 2, 3}), 0)
	require.True(t, math.IsNaN(median(nil)))
}

func TestPrint(t *testing.T) {
	c, err := Runs(runsOf(t, disk{host: "a", p50: 34, steady: 500}, disk{host: "b", p50: 68, steady: 500}), ByNothing)
	require.NoError(t, err)
	var b strings.Builder
	require.NoError(t, c.Print(&b, false))
	require.Equal(t, `all runs: 2 runs, against a:/data
  A  a:/data
  B  b:/data
  figure                    A          B
  sync dsync/4096 p50       42.4 µs    84.9 µs +100 % WORSE
  sync dsync/4096 p99       50.8 µs    102 µs +100 % WORSE
  sync dsync/4096 max       50.9 µs    102 µs +100 % WORSE
  sync dsync/4096 mb_per_s  96.5 MB/s  48.2 MB/s -50 % WORSE
  sustain steady_mb_per_s   500 MB/s   500 MB/s +0 %
  4 of 6 figures stand out; of so many up to 1 may by chance alone
  1 more figures show no proven difference (--all)
`, b.String())

	c, err = Runs(fleet(t, 12, 60), ByModel)
	require.NoError(t, err)
	b.Reset()
	require.NoError(t, c.Print(&b, false))
	require.Contains(t, b.String(), "nvme M1: 12 runs, against their median\n")
	require.Regexp(t, `sync dsync/4096 p99 +5\d(\.\d)? µs +5\d(\.\d)? µs +9\d(\.\d)? µs +bookie-11:/data \+7\d %\n`, b.String())
	for _, line := range strings.Split(b.String(), "\n") {
		require.LessOrEqual(t, len([]rune(line)), 110)
	}
}

// TestQuickIsComparedWithFull: one calls the directory a disk, the other a journal's.
func TestQuickIsComparedWithFull(t *testing.T) {
	full, quick := disk{host: "a", p50: 50}.run(t), disk{host: "a", p50: 100, day: 1}.run(t)
	quick.Device.Role = "disk"
	for _, by := range []By{ByNothing, ByDate} {
		full.Device.SerialHash, quick.Device.SerialHash = "s", "s"
		c, err := Runs([]*result.Run{full, quick}, by)
		require.NoError(t, err)
		require.NotEmpty(t, c.Groups[0].Rows, by)
		require.Equal(t, "journal", c.Groups[0].Rows[0].Figure.Role)
	}
}
