package terminal

import "strings"

// grid is a table whose columns are as wide as their widest cell. The first is aligned to the left, the others to the
// right; what stands behind them is as it is.
type grid struct {
	least []int // widths that columns have at least
	rows  []gridRow
}

type gridRow struct {
	cells  []string // one alone: what stands behind it is a text, in as many lines as it takes
	behind string
}

func (g *grid) add(behind string, cells ...string) {
	g.rows = append(g.rows, gridRow{cells, behind})
}

// note is a row of a name and a text.
func (g *grid) note(name, text string) { g.rows = append(g.rows, gridRow{[]string{name}, text}) }

// widths are those of the widest cells, and what the columns have at least as far as there is room for it.
func (g *grid) widths() []int {
	var w []int
	behind := 0
	for _, r := range g.rows {
		if len(r.cells) == 1 { // a note goes on in further lines
			continue
		}
		for i, c := range r.cells {
			if i == len(w) {
				w = append(w, 0)
			}
			w[i] = max(w[i], runes(c))
		}
		if r.behind != "" {
			behind = max(behind, 1+plainRunes(r.behind))
		}
	}
	room := width - behind + 1
	for _, n := range w {
		room -= 1 + n
	}
	for grown := true; grown && room > 0; {
		grown = false
		for i := range w {
			if i < len(g.least) && w[i] < g.least[i] && room > 0 {
				w[i]++
				room--
				grown = true
			}
		}
	}
	return w
}

func (p *printer) grid(g grid) {
	w := g.widths()
	for _, r := range g.rows {
		if len(r.cells) == 1 {
			p.wrap(r.cells[0]+strings.Repeat(" ", max(0, w[0]-runes(r.cells[0])))+" ", r.behind)
			continue
		}
		var b strings.Builder
		for i, c := range r.cells {
			pad := strings.Repeat(" ", w[i]-runes(c))
			if i == 0 {
				b.WriteString(c + pad)
				continue
			}
			b.WriteString(" " + pad + c)
		}
		if r.behind != "" {
			b.WriteString(" " + r.behind)
		}
		p.line("%s", b.String())
	}
}

// plainRunes is the length of a text without its colours.
func plainRunes(s string) int {
	n, in := 0, false
	for _, r := range s {
		switch {
		case r == '\x1b':
			in = true
		case in:
			in = r != 'm'
		default:
			n++
		}
	}
	return n
}
