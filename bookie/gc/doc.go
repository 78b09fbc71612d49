// Package gc frees the space of ledgers that are gone: it finds out from the metadata which they are, has the storage
// delete them, removes entry logs that hold nothing alive, and compacts those that hold little.
//
// A ledger is deleted only with two proofs (I16 of the protocol): a listing that was begun after the local ledgers were
// noted does not have it, and an individual linearizable read at least Options.Grace later says that its record does not
// exist. Or, for a copy too many: the record is CLOSED and names this bookie in no ensemble, twice, Options.Quiet apart
// and the second time under the ledger's replication lock, and no recovery add has come meanwhile. An error, a time-out, a
// listing that breaks off: nothing is deleted by it. The collector announces each pass to the metadata first (BeginPass),
// which refuses if the store was rolled back or is another cluster's.
//
// Logs: one that holds no ledger that exists is removed at every pass, however full the disk. Below Minor.Below of live
// bytes a log is compacted every Minor.Every, below Major.Below every Major.Every; on a disk above its warning mark both
// at every pass, one log at a time, the emptiest first, so that each frees more than it takes. A damaged log is left
// alone, counted, and stops nothing else.
//
// What is alive, how a deletion and a compaction become durable, and how they go on after a crash is the storage's
// business; the steps are repeatable, so a pass that is cut off anywhere is simply followed by another.
//
// Goroutines: one, started by Start, joined by Close. All methods may be called from any goroutine.
//
// Limits: memory is some 30 bytes for each local ledger during a pass, and for each copy too many between passes.
package gc
