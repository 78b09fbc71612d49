package advice

import (
	"time"

	"github.com/binderylog/bindery/tools/iobench/result"
)

// Loads are the shares of the peak that are predicted, in percent.
var Loads = []float64{10, 50, 80}

const (
	predictWindow = 1000 // adds in flight at the peak
	predictAdds   = 200_000
	predictFor    = 2 * time.Second
	predictMost   = 400_000 // adds of one simulated load
)

// How a prediction was made; it stands beside it.
const howPredicted = "the journal's rules in simulated time over the measured writes"

// Predict returns the peak and the loads below it, with what limits each.
func (m *Model) Predict(entry int) (list []result.Prediction) {
	peak := m.Peak(predictWindow, entry)
	list = append(list, peak)
	for _, load := range Loads {
		list = append(list, m.At(entry, load, peak.AddsPerS*load/100))
	}
	return list
}

// Peak predicts what so many adds in flight come to.
func (m *Model) Peak(window, entry int) result.Prediction {
	return m.prediction(entry, 100, m.Closed(window, entry, predictAdds, 1))
}

// At predicts one rate.
func (m *Model) At(entry int, load, rate float64) result.Prediction {
	d := min(predictFor, time.Duration(predictMost/rate*1e9))
	p := m.prediction(entry, load, m.Open(rate, entry, d, 2))
	p.AddsPerS, p.MBPerS = rate, rate*float64(entry)/1e6
	return p
}

func (m *Model) prediction(entry int, load float64, o Outcome) result.Prediction {
	how := howPredicted
	if m.CPU == 0 && m.CPUPeak == 0 {
		how += "; processor time per add was not measured"
	}
	busy := o.CPUBusy
	if m.CPUPeak > 0 {
		busy = max(busy, o.AddsPerS/m.CPUPeak)
		o.AddsPerS = min(o.AddsPerS, m.CPUPeak)
	}
	low, high := m.spread(int(o.GroupBytes))
	p := result.Prediction{
		EntryBytes: entry, LoadPct: load, AddsPerS: o.AddsPerS, MBPerS: o.AddsPerS * float64(entry) / 1e6,
		P50US: us(o.P50), P99US: us(o.P99), P99LowUS: us(o.P99) * low, P99HighUS: us(o.P99) * high,
		GroupBytes: int(o.GroupBytes), LimitedBy: "device", Model: how,
	}
	if busy > o.DiskBusy {
		p.LimitedBy = "CPU"
	}
	return p
}

func us(d time.Duration) float64 { return float64(d) / 1e3 }

// crowd is how much longer a write takes while another journal writes too, by the chapter on journals.
func crowd(c *result.Chapter) float64 {
	if c == nil {
		return 1
	}
	one, two := c.Cell("1"), c.Cell("2")
	if one == nil || two == nil || one.Latency == nil || two.Latency == nil || one.Latency.P50US == 0 {
		return 1
	}
	return max(1, two.Latency.P50US/one.Latency.P50US)
}
