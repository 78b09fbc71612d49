package terminal

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/binderylog/bindery/tools/iobench/result"
)

// Prometheus writes runs as text that node_exporter's textfile collector takes.
func Prometheus(w io.Writer, runs []*result.Run) error {
	var latency, rate, complete, grade, started strings.Builder
	for _, r := range runs {
		for i := range r.Chapters {
			c := &r.Chapters[i]
			where := labels(r.DeviceAt(c.Device))
			for k := range c.Cells {
				cell := &c.Cells[k]
				if cell.Latency == nil {
					continue
				}
				what := fmt.Sprintf("%s,chapter=%q,cell=%q,durable=\"%t\"", where, c.Name, cell.ID, cell.Durable)
				for _, q := range []struct {
					name string
					us   float64
				}{{"0.5", cell.Latency.P50US}, {"0.99", cell.Latency.P99US}, {"0.999", cell.Latency.P999US}, {"1", cell.Latency.MaxUS}} {
					fmt.Fprintf(&latency, "iobench_latency_seconds{%s,quantile=%q} %s\n", what, q.name, number(q.us/1e6))
				}
				fmt.Fprintf(&rate, "iobench_bytes_per_second{%s} %s\n", what, number(cell.MBPerS*1e6))
			}
		}
		where := labels(&r.Device)
		fmt.Fprintf(&complete, "iobench_complete{%s} %d\n", where, bit(r.Complete))
		fmt.Fprintf(&started, "iobench_started_timestamp_seconds{%s} %d\n", where, r.StartedAt.Unix())
		if rec := r.Recommendation; rec != nil {
			fmt.Fprintf(&grade, "iobench_journal_grade{%s,grade=%q,confidence=%q} 1\n", where, rec.JournalGrade, rec.Confidence)
		}
	}
	for _, m := range []struct {
		name string
		text *strings.Builder
	}{
		{"iobench_latency_seconds", &latency}, {"iobench_bytes_per_second", &rate}, {"iobench_complete", &complete}, {"iobench_started_timestamp_seconds", &started},
		{"iobench_journal_grade", &grade},
	} {
		if m.text.Len() == 0 {
			continue
		}
		if _, err := fmt.Fprintf(w, "# TYPE %s gauge\n%s", m.name, m.text); err != nil {
			return err
		}
	}
	return nil
}

// labels name a disk. Quoting as Go does is what the format wants of what directories and serial numbers hold.
func labels(d *result.Device) string { return fmt.Sprintf("dir=%q,disk=%q", d.Dir, d.SerialHash) }

func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}
