// Package result is what a run of iobench found, and its form as a file: the schema "iobench/1".
//
// A file holds one or more runs one after another, each a JSON document. A run has one subject, the directory that it
// judges; the directories that took part beside it (the ledger disks of `full`) are listed after it. Every number has its
// unit in its name; MB are decimal, durations are microseconds or seconds, histograms count nanoseconds.
//
// Invariants, which Encode and Decode both test:
//   - Percentiles of a figure are those of its histogram, which is the merge of all rounds. No percentile is averaged.
//   - A durable figure names its method; one that is not durable says so.
//   - A figure, verdict, warning or series that names a device or a cell names one that is in the run.
//
// Decode refuses what it does not know: another schema, an unknown field, a figure that can not be. Fields are added to
// the schema, never changed or taken away; docs/formats/iobench.md lists them.
//
// The package starts no goroutine.
package result
