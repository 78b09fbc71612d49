package chart

import (
	"math"
	"strconv"
)

// Point is a value pair, or a place on the drawing.
type Point struct{ X, Y float64 }

// Axis is one direction of a chart. Min and Max of 0 are taken from the data.
type Axis struct {
	Title    string
	Log      bool
	Min, Max float64
	Format   func(float64) string // of ticks; nil: plain numbers
	Ticks    []float64            // nil: round numbers
}

// scale maps values to pixels.
type scale struct {
	lo, hi float64 // of values; logarithms if log
	a, b   float64 // pixels at lo and hi
	log    bool
}

func newScale(a Axis, values []float64, from, to float64) scale {
	lo, hi := math.Inf(1), math.Inf(-1)
	for _, v := range values {
		if drawable(v, a.Log) {
			lo, hi = min(lo, v), max(hi, v)
		}
	}
	if lo > hi { // nothing to draw
		lo, hi = 1, 10
	}
	if a.Log {
		lo, hi = math.Pow(10, math.Floor(math.Log10(lo)+1e-9)), math.Pow(10, math.Ceil(math.Log10(hi)-1e-9))
		if lo == hi {
			hi *= 10
		}
	} else {
		lo = min(lo, 0)
		if hi <= lo {
			hi = lo + 1
		}
		if step := niceStep(hi - lo); a.Max == 0 {
			hi = math.Ceil(hi/step-1e-9) * step
		}
	}
	if a.Min != 0 {
		lo = a.Min
	}
	if a.Max != 0 {
		hi = a.Max
	}
	s := scale{lo: lo, hi: hi, a: from, b: to, log: a.Log}
	if a.Log {
		s.lo, s.hi = math.Log10(lo), math.Log10(hi)
	}
	return s
}

// at is the pixel of a value, kept inside the axis.
func (s scale) at(v float64) float64 {
	if s.log {
		v = math.Log10(v)
	}
	return s.a + (min(max(v, s.lo), s.hi)-s.lo)/(s.hi-s.lo)*(s.b-s.a)
}

// drawable tells values that an axis can have. Beyond a hundred digits steps between marks are no longer numbers.
func drawable(v float64, log bool) bool {
	const far = 1e100
	return v > -far && v < far && (!log || v > 1/far)
}

// ticks are round values inside the scale, at most about n of them.
func (s scale) ticks(n int) (out []float64) {
	if !s.log {
		step := niceStep((s.hi - s.lo) / float64(n) * 5)
		for i := math.Ceil(s.lo/step - 1e-9); i*step <= s.hi+step*1e-9; i++ {
			out = append(out, i*step)
		}
		return out
	}
	decades := s.hi - s.lo
	between := []float64{1}
	switch {
	case decades <= float64(n)/3:
		between = []float64{1, 2, 5}
	case decades <= float64(n)/2:
		between = []float64{1, 3}
	}
	every := max(1, int(math.Ceil(decades/float64(n))))
	for e := int(math.Floor(s.lo + 1e-9)); float64(e) <= s.hi+1e-9; e += every {
		for _, m := range between {
			if l := float64(e) + math.Log10(m); l >= s.lo-1e-9 && l <= s.hi+1e-9 {
				out = append(out, m*math.Pow(10, float64(e)))
			}
		}
	}
	return out
}

// niceStep is the step of 1, 2 or 5 times a power of ten that cuts a span into about five.
func niceStep(span float64) float64 {
	raw := span / 5
	p := math.Pow(10, math.Floor(math.Log10(raw)))
	switch f := raw / p; {
	case f <= 1.0001:
		return p
	case f <= 2.0001:
		return 2 * p
	case f <= 5.0001:
		return 5 * p
	}
	return 10 * p
}

func (a Axis) format(v float64) string {
	if a.Format != nil {
		return a.Format(v)
	}
	return Number(v)
}

// Number writes a figure with three significant digits, whole from 100 on, with commas from 10,000 on.
func Number(v float64) string {
	switch abs := math.Abs(v); {
	case abs == 0:
		return "0"
	case abs >= 9999.5 && abs < 1e15:
		return commas(strconv.FormatFloat(v, 'f', 0, 64))
	case abs >= 99.95 && abs < 1e15:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case abs >= 9.995:
		return trim(strconv.FormatFloat(v, 'f', 1, 64))
	case abs >= 0.01:
		return trim(strconv.FormatFloat(v, 'f', 2, 64))
	}
	return strconv.FormatFloat(v, 'g', 2, 64)
}

// commas parts a whole number into thousands.
func commas(s string) string {
	first := 0
	if s[0] == '-' {
		first = 1
	}
	for i := len(s) - 3; i > first; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// trim takes zeros off a fraction.
func trim(s string) string {
	for s[len(s)-1] == '0' {
		s = s[:len(s)-1]
	}
	if s[len(s)-1] == '.' {
		s = s[:len(s)-1]
	}
	return s
}

// Micros writes a time that is given in microseconds with the unit that suits it.
func Micros(us float64) string {
	switch {
	case us >= 999.5e3:
		return Number(us/1e6) + " s"
	case us >= 999.5:
		return Number(us/1e3) + " ms"
	}
	return Number(us) + " µs"
}

// Seconds writes a time that is given in seconds.
func Seconds(s float64) string {
	switch {
	case s >= 2*3600:
		return Number(s/3600) + " h"
	case s >= 120:
		return Number(s/60) + " min"
	}
	return Number(s) + " s"
}

// timeSteps are the distances that marks of a time axis may have, in seconds.
var timeSteps = []float64{1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 21600, 43200, 86400}

// TimeAxis is an axis from 0 to a number of seconds, marked in one unit.
func TimeAxis(title string, seconds float64) Axis {
	a := Axis{Title: title, Max: max(seconds, 1)}
	step := timeSteps[len(timeSteps)-1]
	for _, s := range timeSteps {
		if a.Max/s <= 10 {
			step = s
			break
		}
	}
	unit, name := 1.0, " s"
	switch {
	case step >= 1800:
		unit, name = 3600, " h"
	case step >= 30 && a.Max > 240:
		unit, name = 60, " min"
	}
	for t := 0.0; t <= a.Max && len(a.Ticks) < 100; t += step {
		a.Ticks = append(a.Ticks, t)
	}
	a.Format = func(s float64) string { return Number(s/unit) + name }
	return a
}

// Bytes writes a size with its binary unit, as settings have them.
func Bytes(b float64) string {
	for _, u := range []struct {
		name string
		n    float64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if b >= u.n {
			return Number(b/u.n) + " " + u.name
		}
	}
	return Number(b) + " B"
}
