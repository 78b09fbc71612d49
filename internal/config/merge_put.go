package config

import (
	"bytes"
	"strings"
)

// put returns the text with an edit in it.
func (e *editor) put(c Edit) []byte {
	for _, p := range e.values {
		if p.key == c.Key {
			return e.replace(p, c)
		}
	}
	parent, name := c.Key[:strings.LastIndexByte(c.Key, '.')], lastPart(c.Key)
	for _, p := range e.values { // the table is written inline
		if p.key == parent && p.inline {
			return e.intoInline(p, name, c)
		}
	}
	for table := parent; ; table = table[:strings.LastIndexByte(table, '.')] {
		if at, ok := e.endOfTable(table); ok {
			return e.insertLine(at, c.Key[len(table)+1:], c)
		}
		if !strings.Contains(table, ".") {
			break
		}
	}
	if p, ok := e.lastBelow(parent); ok { // its keys are written with dots
		key := c.Key
		if p.table != "" {
			key = strings.TrimPrefix(key, p.table+".")
		}
		return e.insertLine(e.lineEnd(p.outerEnd), key, c)
	}
	var b bytes.Buffer
	b.Write(e.text)
	if n := len(e.text); n > 0 {
		if e.text[n-1] != '\n' {
			b.WriteString(e.eol)
		}
		b.WriteString(e.eol)
	}
	b.WriteString("[" + parent + "]" + e.eol + e.line(name, c) + e.eol)
	return b.Bytes()
}

// line is a whole line for an edit.
func (e *editor) line(key string, c Edit) string {
	s := key + " = " + c.Value
	if c.Comment != "" {
		s += "  " + e.mark + c.Comment
	}
	return s
}

// replace puts a new value in the place of an old one.
func (e *editor) replace(p place, c Edit) []byte {
	end := e.lineEnd(p.outerEnd)
	tail := string(e.text[p.outerEnd:end])
	comment := strings.TrimSpace(tail)
	ours := strings.HasPrefix(comment, e.mark)
	head, above := e.above(p.outerStart)
	var b bytes.Buffer
	switch {
	case c.Comment == "" || (!p.within && (comment == "" || ours)):
		b.Write(e.text[:p.value])
	default: // somebody's comment is behind it, or other values are
		b.Write(e.text[:head])
		b.WriteString(e.indent(p.outerStart) + e.mark + c.Comment + e.eol)
		b.Write(e.text[above:p.value])
	}
	b.WriteString(c.Value)
	if p.within {
		b.Write(e.text[p.end:])
		return b.Bytes()
	}
	switch {
	case c.Comment != "" && comment == "":
		b.WriteString("  " + e.mark + c.Comment)
		end = p.outerEnd + len(strings.TrimRight(tail, " \t")) // blanks at the end would stand behind the comment
		end = max(end, e.lineEnd(p.outerEnd))
	case ours && c.Comment != "":
		b.WriteString(tail[:strings.Index(tail, "#")] + e.mark + c.Comment)
	default:
		b.WriteString(tail)
	}
	b.Write(e.text[end:])
	return b.Bytes()
}

// above finds a comment of ours in the line above an expression: it stands in text[head:from]. Without one both are the
// start of the expression's line.
func (e *editor) above(start int) (head, from int) {
	from = e.lineStart(start)
	if from == 0 {
		return from, from
	}
	head = e.lineStart(from - 1)
	if strings.HasPrefix(strings.TrimLeft(string(e.text[head:from]), " \t"), e.mark) {
		return head, from
	}
	return from, from
}

// indent is the white space before an expression.
func (e *editor) indent(start int) string {
	line := string(e.text[e.lineStart(start):start])
	return line[:len(line)-len(strings.TrimLeft(line, " \t"))]
}

// intoInline adds a value to an inline table.
func (e *editor) intoInline(p place, name string, c Edit) []byte {
	head, above := e.above(p.outerStart)
	var b bytes.Buffer
	b.Write(e.text[:head])
	if c.Comment != "" {
		b.WriteString(e.indent(p.outerStart) + e.mark + c.Comment + e.eol)
	} else {
		above = head
	}
	b.Write(e.text[above:p.lastEnd])
	if p.empty {
		b.WriteString(" " + name + " = " + c.Value + " ")
	} else {
		b.WriteString(", " + name + " = " + c.Value)
	}
	b.Write(e.text[p.lastEnd:])
	return b.Bytes()
}

// endOfTable is the end of the last line that belongs to [table]: of its last value, or of the header.
func (e *editor) endOfTable(table string) (int, bool) {
	for _, h := range e.headers {
		if h.key != table {
			continue
		}
		end := h.end
		for _, p := range e.values {
			if p.table == table && !p.within {
				end = max(end, e.lineEnd(p.outerEnd))
			}
		}
		return end, true
	}
	return 0, false
}

// lastBelow is the last value whose key lies below a table.
func (e *editor) lastBelow(table string) (last place, ok bool) {
	for _, p := range e.values {
		if !p.within && strings.HasPrefix(p.key, table+".") && !strings.HasPrefix(p.table+".", table+".") {
			last, ok = p, true
		}
	}
	return last, ok
}

// insertLine puts a line for an edit behind the line that ends at a place, indented as that one is.
func (e *editor) insertLine(at int, key string, c Edit) []byte {
	var b bytes.Buffer
	b.Write(e.text[:at])
	line := string(e.text[e.lineStart(at):at])
	b.WriteString(e.eol + line[:len(line)-len(strings.TrimLeft(line, " \t"))] + e.line(key, c))
	b.Write(e.text[at:])
	return b.Bytes()
}
