// Package report writes results of iobench as one HTML file that needs nothing else: no script, style or picture from
// outside, at most 1 MB, readable on a phone, in the dark and on A4.
//
// Invariants:
//   - What was not measured is shown as not measured, with the reason; what was interrupted says so. A write that no sync
//     followed is marked NOT DURABLE wherever it stands.
//   - Every figure of a chart stands in a table below, for those who can not see the chart.
//   - Texts of results are escaped: a result may come from anybody. The page forbids everything but its own style and the
//     one script of the copy button.
//   - The same results give the same bytes.
//
// The package starts no goroutine.
package report
