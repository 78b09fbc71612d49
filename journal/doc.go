// Package journal makes records durable before anyone is told they are.
//
// A record is opaque bytes with a kind and a tag. Records are gathered into groups; a group is one aligned extent of a
// segment file and reaches the disk in one durable write. docs/formats/journal.md has the format:
//
//	segment:  | header, 4 KiB | group | group | ...
//	group:    | magic, version, segment id, sequence, S, count, length, CRC32C | record | record | ... | zeros to 4 KiB
//	record:   | length, kind, tag, payload CRC32C, header CRC32C | payload |
//
// All checksums are seeded with a salt that each life of a segment file draws anew, and with the place they stand at. S
// is the highest sequence known to be durable when the group was written: what is missing up to the highest S of a run
// is damage, what is missing behind it is a torn tail (decision 1; walk.go).
//
// # The path of a record
//
//	Reserve      takes room in the queue, outside all locks; the only place that waits
//	Append       payload CRC, then under one short mutex: header and one copy into the open group
//	Commit       wakes a worker, if a group may start
//	worker       seals the open group, takes it with everything appended meanwhile, writes it
//	             marks it written; groups become complete in order of their sequence
//	             one worker at a time runs JournalDone for each record of a complete group, then JournalFlush
//
// There is no goroutine, timer, channel send or allocation per record. The pipeline is self-clocked: while
// GroupsInFlight groups are being written the next one fills. Beside a group in flight another one starts only if it
// holds 32 KiB or half the measured sync time has passed (mayStart).
//
// Segments are prepared ahead: a spare file, zeroed or recycled, gets its header and name in the background. A segment's
// identity (id, salt) is drawn in memory, so appending goes on across a switch even if its file is not ready; only the
// write waits.
//
// Invariants:
//   - A record's JournalDone(nil) runs only after a durable write of its group and of every earlier group.
//   - JournalDone runs in the order of Append, in one goroutine at a time, with no lock held.
//   - After the first failed write or sync of a group, or sync of the names of segments, nothing is acknowledged any more; every call returns ErrPoisoned with the cause
//     until the directory is opened again. Nothing is retried.
//   - Positions only grow over the life of a directory, also across crashes, damage and lost segments, as long as Replay
//     is given the caller's mark.
//   - Trim(p) never removes a record at or after p. Segments go oldest first, each durably before the next.
//   - A group is written into a segment only after the segment's header and name are durable.
//   - A file named as a segment always had a whole header, so a bad one is damage.
//   - Start syncs what Replay found before anything is acknowledged: the process that wrote it may not have.
//
// Goroutines: GroupsInFlight+1 workers, a keeper (the clock: it covers the last group when no other follows, and starts
// groups that only waited for time), a preparer (all file operations besides writing groups), and in relaxed mode a
// syncer. Start starts them, Close joins them; each has a pprof label. Callers may use a Journal concurrently.
//
// Limits: segments of 64 KiB to 2 GiB; record bodies up to Options.MaxRecordBytes (5 MiB + 64 KiB by default), larger than
// a group if need be; 1 to 4 groups in flight; bodies between Reserve and acknowledgement up to Options.QueueBytes, held
// in buffers off the Go heap. On a full disk records wait and Reserve refuses more (ErrWaiting) until a segment
// can be had; one is kept back so that the next Start needs no space. Without it and without space Start returns NoSpaceError and may be called again; Replay and Trim work.
package journal
