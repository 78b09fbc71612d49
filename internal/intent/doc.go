// Package intent keeps small durable lists of what is about to be done, so that a step that a crash interrupted is
// finished or undone at the next start: compactions and deletions of entry logs now, offload attempts later.
//
// Open returns a log that appends through tidwall/wal, in a directory of its own. OpenVFS returns its twin, which
// appends through a vfs.FS, for tests and the simulator. Both share everything else, the file format included.
//
// # Files
//
//	DIR/LOCK                               held while the log is open
//	DIR/00000007/00000000000000000001      the records of generation 7, a tidwall/wal segment
//	DIR/00000008.tmp/...                   generation 8 being built; removed when found at Open
//	DIR/damaged-00000005/...               set aside by Options.Salvage, at most 8 of them
//
// The library's file is a sequence of (uvarint length, record). It has no checksum, takes a zero-filled tail for empty
// entries, can not be opened with a torn one, goes wrong after a failed write, replaces files without syncing the
// directory, and holds a segment in memory. Hence: each record carries its own header and CRC32C; the file is checked,
// and a torn tail cut off, before the library opens it; one goroutine calls it, and never to read; the library never
// starts or cuts a file, since a generation has exactly one; the first failure is the last call.
//
//	+-----------+---------+------+----------+------------+-------+---------+-------+------------+---------+-----------+
//	| magic (4) | ver (1) | kind | zero (2) | generation | index | durable | id    | length (4) | CRC of  | CRC of    |
//	| "BINT"    | 1       | (1)  |          | (8)        | (8)   | (8)     | (8)   | of data    | data(4) | header(4) |
//	+-----------+---------+------+----------+------------+-------+---------+-------+------------+---------+-----------+
//	| data: at most MaxRecord bytes                                                              big-endian throughout |
//	+-----------------------------------------------------------------------------------------------------------------+
//
// index counts the records of the file from 1. durable is the index up to which the file was synced when the record was
// written, and is what tells a torn tail from damage: after each sync with nothing to follow, a record with no other
// purpose states it; the head states it for the records that a file starts with. A record that is missing or bad at or below the highest durable index read anywhere in the file was
// acknowledged, so the file is damaged: Open fails with a *corrupt.Error, or salvages. One above it was not: the file is
// cut there, and everything behind, whole records too, was not acknowledged either.
//
// # Generations
//
// A file that is mostly garbage is replaced: the pending intents go into the next generation, whose file and names are
// synced before one rename makes it the current one; then the old one is removed. A crash at any step leaves the old
// or the new one whole. If building fails, for want of space say, the old one stays in use.
//
// # Invariants
//
//   - Append and Done return nil only after a sync that began once the record was written.
//   - What Pending returns at Open was synced by this process before Open returned.
//   - After the first failed write or sync every call fails with ErrPoisoned until the log is opened again. One exception:
//     a write refused by a full disk is taken back as Open would, so that whoever frees space can go on.
//   - Ids grow and are never reused, also after Salvage.
//
// Goroutines: one per open log, started by Open, joined by Close. Limits: MaxRecord, MaxPending, MaxPendingBytes;
// 64 callers wait in the queue, more block until their context ends.
package intent
