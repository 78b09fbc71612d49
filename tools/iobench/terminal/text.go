package terminal

import (
	"fmt"
	"strings"
)

type colour string

const (
	red    colour = "31"
	green  colour = "32"
	yellow colour = "33"
)

func (p *printer) paint(c colour, text string) string {
	if !p.color {
		return text
	}
	return "\x1b[" + string(c) + "m" + text + "\x1b[0m"
}

func gigabytes(n int64) string {
	if n < 1e9 {
		return fmt.Sprintf("%d MB", n/1e6)
	}
	return fmt.Sprintf("%.1f GB", float64(n)/1e9)
}

func seconds(s float64) string {
	if s < 120 {
		return fmt.Sprintf("%.0f s", s)
	}
	return fmt.Sprintf("%.0f min", s/60)
}

func micros(us float64) string {
	if us < 1000 {
		return fmt.Sprintf("%.0f us", us)
	}
	return fmt.Sprintf("%.1f ms", us/1e3)
}

func size(n int) string {
	switch {
	case n >= 1<<20 && n%(1<<20) == 0:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 1<<10 && n%(1<<10) == 0:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d B", n)
}

func thousands(v float64) string {
	s := fmt.Sprintf("%.0f", v)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// bar is a length of at most n signs for a share.
func bar(share float64, n int) string {
	return strings.Repeat("#", max(min(int(share*float64(n)+0.5), n), 0))
}

// sparkline draws values in one row of at most n signs.
func sparkline(values []float64, n int) string {
	if len(values) == 0 {
		return ""
	}
	const signs = " .:-=+*#%@"
	per := max((len(values)+n-1)/n, 1)
	top := 0.0
	var cells []float64
	for at := 0; at < len(values); at += per {
		part := values[at:min(at+per, len(values))]
		sum := 0.0
		for _, v := range part {
			sum += v
		}
		cells = append(cells, sum/float64(len(part)))
		top = max(top, sum/float64(len(part)))
	}
	var b strings.Builder
	for _, v := range cells {
		i := 0
		if top > 0 {
			i = int(v / top * float64(len(signs)-1))
		}
		b.WriteByte(signs[i])
	}
	return b.String()
}
