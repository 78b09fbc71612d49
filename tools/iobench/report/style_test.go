package report

import (
	"bytes"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/tools/iobench/result"
)

// TestContrast: text is read at 4.5 to 1, lines and marks at 3 to 1, in the light and in the dark.
func TestContrast(t *testing.T) {
	head, rest, ok := strings.Cut(pageCSS, "@media screen and (prefers-color-scheme: dark)")
	require.True(t, ok)
	light := colours(head)
	dark := colours(head)
	for k, v := range colours(rest[:strings.Index(rest, "* {")]) {
		dark[k] = v
	}
	for mode, c := range map[string]map[string]float64{"light": light, "dark": dark} {
		at := func(least float64, front, back string) {
			require.Contains(t, c, front)
			require.Contains(t, c, back)
			require.GreaterOrEqual(t, contrast(c[front], c[back]), least, "%s: %s on %s", mode, front, back)
		}
		for _, back := range []string{"bg", "card"} {
			for _, front := range []string{"ink", "soft", "bad", "warn", "m2", "focus"} {
				at(4.5, front, back)
			}
			for _, front := range []string{"m0", "m1", "m2", "m3", "m4", "g0", "g1", "g2", "g3"} {
				at(3, front, back)
			}
			for i := range 9 {
				at(3, fmt.Sprint("z", i), back)
			}
		}
		for i := range 4 {
			at(4.5, fmt.Sprintf("h%dt", i), fmt.Sprint("h", i))
		}
		at(4.5, "bad", "badbg")
		at(4.5, "warn", "warnbg")
	}
}

var colourText = regexp.MustCompile(`--(\w+): #([0-9a-f]{6})`)

// colours are the luminances of the variables of a style sheet.
func colours(css string) map[string]float64 {
	out := map[string]float64{}
	for _, m := range colourText.FindAllStringSubmatch(css, -1) {
		sum := 0.0
		for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
			v, _ := strconv.ParseUint(m[2][2*i:2*i+2], 16, 8)
			x := float64(v) / 255
			if x <= 0.03928 {
				x /= 12.92
			} else {
				x = math.Pow((x+0.055)/1.055, 2.4)
			}
			sum += weight * x
		}
		out[m[1]] = sum
	}
	return out
}

func contrast(a, b float64) float64 { return (max(a, b) + 0.05) / (min(a, b) + 0.05) }

// TestWideTablesScrollInThemselves: each has a region of its own that does, and a column of sentences may wrap.
func TestWideTablesScrollInThemselves(t *testing.T) {
	runs, err := result.ReadFile("../result/testdata/full.json")
	require.NoError(t, err)
	var b bytes.Buffer
	require.NoError(t, Write(&b, runs))
	html := b.String()
	tables := strings.Count(html, "<table")
	require.Greater(t, tables, 10)
	require.Equal(t, tables, strings.Count(html, `<div class="scroll" tabindex="0" role="region" aria-label=`))
	require.Contains(t, html, `<td class="words">write of 4 KiB`)
	require.NotContains(t, html, `<th class="words"`)
	for _, rule := range []string{".scroll { overflow-x: auto;", ".tables td.words { white-space: normal;", "p, li, dd { overflow-wrap: anywhere; }"} {
		require.Contains(t, html, rule)
	}
}
