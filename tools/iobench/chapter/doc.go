// Package chapter holds the parts that a run is made of: each asks one question of a disk and answers it with the cells,
// verdicts and time lines of a result.Chapter.
//
// Invariants:
//   - A chapter that ends early returns what it measured until then, beside the error that ended it.
//   - What can not be measured here is a cell that says so. Nothing else is put in its place.
//   - Writes that no sync follows are not durable and say so; a durable one names its method.
//
// Background loads run in goroutines that their chapter joins.
package chapter
