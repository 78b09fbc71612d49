// Package chart draws the few kinds of charts that a report of iobench needs, as SVG to stand inside an HTML page.
//
// Each kind is a struct with a method SVG: the same input gives the same bytes. Drawings carry classes, not colours: the page's
// style sheet colours them, for light and dark and for paper. What a colour says is said a second time by a dash, a symbol
// or a number. Text comes from results, which anybody may have written: every string is escaped here.
//
// A chart is as wide as a phone (Width) or, with Wide, twice that; the page scrolls the wide ones on a phone instead of
// shrinking their text. Numbers that can not be drawn (not finite, or not positive on a logarithmic axis) are left out.
//
// The package starts no goroutine.
package chart
