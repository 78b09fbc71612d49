//go:build interop

package interop

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
)

// table collects what ran against what.
type table struct {
	mu   sync.Mutex
	rows []string // in order of appearance
	cols []string
	cell map[[2]string]string
}

func (t *table) set(row, col, outcome string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.cell == nil {
		t.cell = map[[2]string]string{}
	}
	add := func(list *[]string, s string) {
		for _, x := range *list {
			if x == s {
				return
			}
		}
		*list = append(*list, s)
	}
	add(&t.rows, row)
	add(&t.cols, col)
	t.cell[[2]string{row, col}] = outcome
}

// lines are the outcomes of what is no pair of clients: a command of the shell, or a whole story.
var lines []string

// note adds the outcome of a test that is a story of its own to what is printed at the end.
func note(t *testing.T, against string) {
	name, _, _ := strings.Cut(strings.TrimPrefix(t.Name(), "Test"), "/")
	lines = append(lines, fmt.Sprintf("%-4s  %s  %s", outcomeOf(t), name, against))
}

func outcomeOf(t *testing.T) string {
	switch {
	case t.Failed():
		return "FAIL"
	case t.Skipped():
		return "n/a"
	}
	return "ok"
}

// print writes one line for each row and a count of the outcomes.
func (t *table) print(out io.Writer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.rows) == 0 {
		return
	}
	fmt.Fprintln(out, "\nWhat ran against what (ok, FAIL, n/a: the client or its protocol does not have it):")
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "bookies\twriter\treader\t"+strings.Join(t.cols, "\t"))
	count := map[string]int{}
	for _, r := range t.rows {
		line := []string{strings.ReplaceAll(r, "|", "\t")}
		for _, c := range t.cols {
			o := t.cell[[2]string{r, c}]
			if o != "" {
				count[o]++
			} else {
				o = "-"
			}
			line = append(line, o)
		}
		fmt.Fprintln(w, strings.Join(line, "\t"))
	}
	w.Flush()
	fmt.Fprintf(out, "%d ok, %d failed, %d n/a\n", count["ok"], count["FAIL"], count["n/a"])
}
