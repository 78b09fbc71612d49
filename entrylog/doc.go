// Package entrylog keeps entry bodies in append-only logs that interleave all ledgers of a directory.
//
// A log is a header, checkpoints, and, once it is sealed, a footer:
//
//	+--------+---------------------------------------------+-----+-------------------------------------+
//	| header | entries | run table | states | pad | commit | ... | run table | states | map | trailer  |
//	+--------+---------------------------------------------+-----+-------------------------------------+
//	  4 KiB    one checkpoint, ends at a multiple of 4 KiB         the footer
//
// Every record carries a CRC32C that is seeded with the log's salt and the record's offset. docs/formats/entrylog.md has every
// byte. What a ledger state means is the storage's business.
//
// Invariants:
//   - After Checkpoint returned nil, everything appended before is durable together with its run table and states.
//   - A log whose write or sync failed is never written to again; the flush is repeated in a new one.
//   - Behind the last checkpoint of a log never lies anything older than what it holds: an aborted flush that has touched the
//     file ends the log.
//   - What was synced and can not be read is damage, with file and offset; it is never reported as absence. A footer is
//     written only for a log whose content is known whole.
//   - A compaction's log is either whole or not there. Its precedence keeps its copies older than what was added meanwhile.
//   - An id names one log for ever.
//   - While a log is pinned for reading its file stays; after Remove nobody new gets in.
//
// Goroutines: each log being written has one that makes the write calls, started with the log and joined when it ends; one
// per store seals ended logs and exits when there are none. Close waits for all. Append, Checkpoint, Abort and Roll belong to
// the caller's flusher; everything else may be called from anywhere.
//
// Limits: bodies of 24 bytes to 5 MiB + 64 KiB, states of 64 KiB, runs of 8,192 entries, logs of 1 TiB, 2^32-1 logs. Memory: two
// buffers of 1 MiB off the heap for each log being written, one chunk (64 KiB) per checkpoint while a log is sealed, and at
// most one record while a log is scanned. Open file handles for reading: 256.
package entrylog
