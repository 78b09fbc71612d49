// Package storage is a bookie's memory and disks behind the journal: write caches, entry logs, index, and what is known
// of each ledger besides its entries.
//
// One Storage owns several ledger directories. A directory has two write caches that swap, an entry log store, an index
// and one flusher; a ledger lives in one directory, the one whose logs hold its state, whatever the order of the
// directories in the configuration. New ledgers go to the directory with the least load.
//
// An add: the caller takes the ledger's handle, reserves room (Ledger.Reserve, which may block), locks the ledger, asks
// the rules (Ledger.Replica), stores the entry (Put), appends it to its journal and unlocks. A read looks into the current
// write cache, the one being flushed, the overlay (runs of logs that the index does not hold yet) and the index, in this
// order, which is the order in which an entry moves; so it is found wherever a concurrent flush has just put it.
//
// A checkpoint of a directory, in this order: take the journals' marks, swap the caches, append the entries sorted by
// ledger and entry, append the run table and the changed ledger states to the same log, sync once, show the runs in the
// overlay, release the cache, write the mark, tell the journals. Sealed logs go into the index later, by a goroutine of
// their own.
//
// Invariants:
//   - There is at most one handle of a ledger at any time, so one lock covers test and change of its rules.
//   - Everything a caller did before it appended to a journal is in the cache, or in the list of changed states, that
//     the next swap takes: marks are taken before the swap, entries are stored before they are appended.
//   - The usable mark is the minimum over the directories, one with nothing unflushed counting as the end; it never goes
//     back while the process lives.
//   - An absent entry is denied only by a directory that vouches for it. Damage, a failed directory, limbo and a ledger
//     unknown while a directory is missing are errors of their own (corrupt.Error, ErrUnknown).
//   - A deleted ledger's entries never come back: its handle carries a floor, and nothing in a log up to the floor is
//     its entry. See delete.go and births.go.
//
// Goroutines: per directory a flusher and an index keeper, and up to two read-ahead workers for all. Close joins them.
//
// Limits: MaxEntry bytes an entry; ledger and entry ids 0 to 2^63-1; 64 directories; master keys 1 KiB, explicit LAC
// bodies 32 KiB; the damaged list holds Options.DamagedMax entries.
package storage
