// Package bookie is the server that keeps a share of many ledgers' entries: it answers BookKeeper's protocol (V2 and V3
// on one port) from journals and storage, and is a member of a cluster under an identity of its own.
//
// An add goes this way. A connection's reader takes every complete frame in its buffer as one batch. For each run of adds
// to one ledger it takes room (in-flight budget, journal, write cache) while it holds nothing, then, under the ledger's
// lock, asks the ledger's rules, stores the entry in the write cache and appends it to the journal's open group. One
// Commit per batch wakes the journal. When the group is durable the journal's acknowledging goroutine encodes the answers
// straight into the connections' output and sends them, one non-blocking write per connection and group. Nothing on this
// way allocates, or is a goroutine, a timer or a channel send per entry.
//
// A read of one entry that a cache holds is answered by the connection's reader. One whose entry may lie on disk is done by a
// fixed number of read workers. Fencing reads set the fence under the same
// lock, and are handed to a worker when the journal says that the fence is durable; so no answer to them, negative ones
// and those about unknown ledgers included, precedes the fence. Long polls wait as callbacks of the storage.
//
// Invariants:
//   - A positive answer to an add, an explicit LAC or a force leaves after the sync that covers it (with durability sync).
//   - An answer to a fencing read leaves after the fence, and the key it bound, are durable. Afterwards no normal add to
//     that ledger is accepted, across restarts, losses and deletion.
//   - What is replayed at a start is synced before the first answer.
//   - Whatever may have been lost is in limbo, fenced and durable before the first answer: unknown, never "no such entry".
//   - Code that acknowledges never waits for a peer, and code that holds a ledger's lock waits for nothing.
//   - Bytes of requests and answers in memory stay within the in-flight budget, give or take one entry per read worker
//     and 4 KiB per busy connection. A quarter of it is for buffers, a quarter for large frames, half for what is under
//     way; the last tenth of that serves fencing, recovery and reads only. Nobody waits for buffers, and who has room for
//     a large frame waits only for its peer and for what is under way: peers that are stuck do not stop the others. For a
//     peer that does not take its answers at most 1 MiB is read ahead, and nothing while the budget is nearly used up.
//
// Start: take the port (connections are closed at once), lock and check the directories against metadata, open journals
// and storage, replay, sync what was replayed, put losses into limbo, serve, watch disks and collect garbage, register.
//
// Stop, in this order: register read-only and serve on for the drain time, if one is set; unregister; accept and read nothing more; answer what has been read, at most as long as the caller
// waits; close connections; end garbage collection; sync the journals; flush the write caches and write the marks; close
// the files; note a clean stop in directories and metadata. SIGKILL at any moment loses nothing that was acknowledged.
//
// Goroutines (each has a pprof label): an accept loop per listener, a reader per connection and, while its peer is slow, a
// writer; read workers; up to 8 verifiers while adds wait for metadata; one disk watcher; one follower of the
// registration; and those of journal, storage, gc and registration. Stop joins them all.
//
// Locks, in the order in which they may be taken: ledger (storage.Ledger), then conn.mu or a journal's own. conn.mu is a
// leaf but for the budget. No lock is held across disk or network.
//
// Limits: frames of Options.FrameLimit bytes, 65,536 connections, 65,536 waiting long polls, 1,024 unanswered reads per
// connection, 1 MiB of unsent answers or 64 reads that wait for them per connection before it is not read any more, 4,096 adds waiting for metadata,
// master keys of 1 KiB, batch reads of 5 MiB.
package bookie
