package main

import (
	"bytes"
	"fmt"
	"io"
)

// diffContext is how many unchanged lines a hunk has around its changes.
const diffContext = 3

// diffLine is a line of a diff: kept (' '), gone ('-') or new ('+').
type diffLine struct {
	kind byte
	text []byte
}

// writeDiff shows what changes between two texts as a unified diff.
func writeDiff(w io.Writer, name string, was, is []byte) error {
	lines := diffLines(splitLines(was), splitLines(is))
	fmt.Fprintf(w, "--- %s\n+++ %s\n", name, name)
	oldAt, newAt := 1, 1
	for i := 0; i < len(lines); {
		if lines[i].kind == ' ' {
			i, oldAt, newAt = i+1, oldAt+1, newAt+1
			continue
		}
		from := max(0, i-diffContext)
		end := hunkEnd(lines, i)
		olds, news := i-from, i-from // of the context before
		firstOld, firstNew := oldAt-olds, newAt-news
		for _, l := range lines[i:end] {
			if l.kind != '+' {
				olds, oldAt = olds+1, oldAt+1
			}
			if l.kind != '-' {
				news, newAt = news+1, newAt+1
			}
		}
		fmt.Fprintf(w, "@@ -%d,%d +%d,%d @@\n", firstOld, olds, firstNew, news)
		for _, l := range lines[from:end] {
			if _, err := fmt.Fprintf(w, "%c%s\n", l.kind, l.text); err != nil {
				return err
			}
		}
		i = end
	}
	return nil
}

// hunkEnd is where a hunk ends that begins with the change at i: after the context behind its last change.
func hunkEnd(lines []diffLine, i int) int {
	last := i
	for k := i; k < len(lines) && k-last <= 2*diffContext; k++ {
		if lines[k].kind != ' ' {
			last = k
		}
	}
	return min(last+1+diffContext, len(lines))
}

func splitLines(text []byte) [][]byte {
	if len(text) == 0 {
		return nil
	}
	return bytes.Split(bytes.TrimSuffix(text, []byte("\n")), []byte("\n"))
}

// diffLines aligns two texts. Where they part it looks for the nearest lines that agree again. That is not always the
// shortest diff, but always a true one, and a merge changes single lines.
func diffLines(a, b [][]byte) (out []diffLine) {
	const lookAhead = 64
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		if i < len(a) && j < len(b) && bytes.Equal(a[i], b[j]) {
			out = append(out, diffLine{' ', a[i]})
			i, j = i+1, j+1
			continue
		}
		di, dj := min(len(a)-i, lookAhead), min(len(b)-j, lookAhead)
		for sum := 1; sum < di+dj; sum++ {
			if x, y, ok := agree(a[i:], b[j:], sum); ok {
				di, dj = x, y
				break
			}
		}
		for range di {
			out = append(out, diffLine{'-', a[i]})
			i++
		}
		for range dj {
			out = append(out, diffLine{'+', b[j]})
			j++
		}
	}
	return out
}

// agree looks for lines that agree when x of a and y of b are passed over, with x+y = sum; as few of a as possible.
func agree(a, b [][]byte, sum int) (x, y int, ok bool) {
	for x := range sum + 1 {
		y := sum - x
		if x < len(a) && y < len(b) && bytes.Equal(a[x], b[y]) {
			return x, y, true
		}
	}
	return 0, 0, false
}
