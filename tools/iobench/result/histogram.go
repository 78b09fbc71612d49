package result

import (
	"bytes"
	"compress/zlib"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"
)

// Histograms count nanoseconds with three digits; what is longer counts as the longest.
const (
	histogramMin    = 1
	histogramMax    = int64(10 * time.Minute)
	histogramDigits = 3
	// histogramTextMax bounds the base64 text of one histogram: the form above encodes to less.
	histogramTextMax = 512 << 10
)

// NewHistogram returns an empty histogram of the form that results hold.
func NewHistogram() *hdr.Histogram { return hdr.New(histogramMin, histogramMax, histogramDigits) }

// Record counts a duration.
func Record(h *hdr.Histogram, d time.Duration) {
	_ = h.RecordValue(min(max(int64(d), histogramMin), histogramMax)) // in range, so it can not fail
}

// NewLatency is what a histogram says, nil if it is empty.
func NewLatency(h *hdr.Histogram) *Latency {
	if h == nil || h.TotalCount() == 0 {
		return nil
	}
	text, err := h.Encode(hdr.V2CompressedEncodingCookieBase) // base64 already
	if err != nil {
		return nil // can not happen: it writes to memory
	}
	l := figures(h)
	l.Histogram = string(text)
	return l
}

// figures are the numbers of a histogram that is not empty.
func figures(h *hdr.Histogram) *Latency {
	p := h.ValueAtPercentilesSlice([]float64{50, 90, 99, 99.9, 99.99, 100})
	return &Latency{
		Count:   h.TotalCount(),
		MinUS:   micros(h.Min()),
		MeanUS:  h.Mean() / 1e3,
		P50US:   micros(p[0]),
		P90US:   micros(p[1]),
		P99US:   micros(p[2]),
		P999US:  micros(p[3]),
		P9999US: micros(p[4]),
		MaxUS:   micros(p[5]),
	}
}

func micros(nanos int64) float64 { return float64(nanos) / 1e3 }

// Decode returns the histogram of a latency. It takes only the form that NewHistogram makes.
func (l *Latency) Decode() (*hdr.Histogram, error) {
	if err := checkGeometry(l.Histogram); err != nil {
		return nil, fmt.Errorf("histogram: %w", err)
	}
	h, err := hdr.Decode([]byte(l.Histogram))
	if err != nil {
		return nil, fmt.Errorf("histogram: %w", err)
	}
	return h, nil
}

// checkGeometry looks at the header of a histogram before anything is allocated for its counts.
func checkGeometry(text string) error {
	if len(text) > histogramTextMax {
		return fmt.Errorf("%d characters, more than the %d that one needs", len(text), histogramTextMax)
	}
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return err
	}
	const outer, header = 8, 40 // cookie and length; then, compressed, the header of the counts
	if len(data) < outer {
		return errors.New("too short")
	}
	z, err := zlib.NewReader(bytes.NewReader(data[outer:]))
	if err != nil {
		return err
	}
	defer z.Close()
	var b [header]byte
	if _, err := io.ReadFull(z, b[:]); err != nil {
		return err
	}
	digits := int32(binary.BigEndian.Uint32(b[12:]))
	lowest, highest := int64(binary.BigEndian.Uint64(b[16:])), int64(binary.BigEndian.Uint64(b[24:]))
	if digits != histogramDigits || lowest != histogramMin || highest != histogramMax {
		return fmt.Errorf("counts %d to %d with %d digits; results hold %d to %d ns with %d", lowest, highest, digits, histogramMin, histogramMax, histogramDigits)
	}
	return nil
}
