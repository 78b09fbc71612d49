package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
)

// outputFormat is the value of --output.
type outputFormat string

const (
	outputTable outputFormat = "table"
	outputJSON  outputFormat = "json"
)

// String implements pflag.Value.
func (f *outputFormat) String() string { return string(*f) }

// Type implements pflag.Value.
func (f *outputFormat) Type() string { return "table|json" }

// Set implements pflag.Value.
func (f *outputFormat) Set(s string) error {
	switch outputFormat(s) {
	case outputTable, outputJSON:
		*f = outputFormat(s)
		return nil
	}
	return fmt.Errorf("%q is neither table nor json", s)
}

// addOutputFlag gives a command its --output flag, with table as the default.
func addOutputFlag(c *cobra.Command, f *outputFormat) {
	*f = outputTable
	c.Flags().Var(f, "output", "print for people (table) or for programs (json)")
}

// printJSON writes v as indented JSON. Field names are snake_case with the unit last.
func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// printTable writes rows in aligned columns under a header. Columns whose header starts with ">" are right-aligned
// numbers.
func printTable(w io.Writer, header []string, rows [][]string) error {
	right := make([]bool, len(header))
	width := make([]int, len(header))
	for i, h := range header {
		if strings.HasPrefix(h, ">") {
			right[i] = true
			h = h[1:]
		}
		width[i] = len(h)
		for _, r := range rows {
			if i < len(r) {
				width[i] = max(width[i], len(r[i]))
			}
		}
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(cells []string) {
		out := make([]string, len(cells))
		for i, c := range cells {
			c = strings.TrimPrefix(c, ">")
			if i < len(right) && right[i] {
				c = fmt.Sprintf("%*s", width[i], c)
			}
			out[i] = c
		}
		fmt.Fprintln(tw, strings.TrimRight(strings.Join(out, "\t"), " \t"))
	}
	line(header)
	for _, r := range rows {
		line(r)
	}
	return tw.Flush()
}
