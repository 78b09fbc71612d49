package chart

import "html/template"

// HeatCell is one field of a Heatmap. Level 0 is best, 3 worst; the text says the same in figures.
type HeatCell struct {
	Text    string
	Level   int
	Missing bool
	Tip     string
}

// Heatmap is a grid of fields in four levels.
type Heatmap struct {
	Label      string
	Rows, Cols []string
	Groups     []string // headings over equal shares of the columns; may be empty
	Cells      [][]HeatCell
}

// SVG draws the grid.
func (m Heatmap) SVG() template.HTML {
	const cellHeight, top = 30, 40
	left := labelWidth(m.Rows)
	w := float64(Width)
	if len(m.Cols) > 3 {
		w = max(w, left+80*float64(len(m.Cols))+4)
	}
	c := newCanvas(w, top+cellHeight*float64(len(m.Rows))+4)
	cw := (w - left - 4) / float64(max(len(m.Cols), 1))
	for i, g := range m.Groups {
		share := float64(len(m.Cols)) / float64(len(m.Groups))
		c.text("title", "middle", left+cw*share*(float64(i)+0.5), 13, clip(g, cw*share))
	}
	for i, s := range m.Cols {
		c.text("tick", "middle", left+cw*(float64(i)+0.5), top-8, clip(s, cw))
	}
	for i, name := range m.Rows {
		y := top + cellHeight*float64(i)
		c.text("name", "end", left-8, y+cellHeight/2+4, clip(name, left))
		for j := range m.Cols {
			cell := HeatCell{Missing: true}
			if i < len(m.Cells) && j < len(m.Cells[i]) {
				cell = m.Cells[i][j]
			}
			x := left + cw*float64(j)
			class, text := "heat", cell.Text
			if cell.Missing {
				class = "heat none"
				if text == "" {
					text = "–"
				}
			} else {
				class += " h" + string(rune('0'+min(max(cell.Level, 0), 3)))
			}
			c.rect(class, x+1, y+1, cw-2, cellHeight-2, cell.Tip)
			c.text(class+"text", "middle", x+cw/2, y+cellHeight/2+4, clip(text, cw))
		}
	}
	return c.svg(m.Label)
}
