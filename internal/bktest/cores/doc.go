// Package cores simulates many ledgers, clients and bookies with the pure cores of package ledger: the writer, the
// recovery, the reader and the bookie's per-ledger rules that the product runs. Everything that happens is one event
// that a seed picks from an ordered list, so a seed replays exactly, to the last bit of every state.
//
// It is larger than what the model check can exhaust and smaller than a cluster of real bookies: there are no goroutines,
// clocks, sockets or disks, only what the protocol knows of them. A bookie has a part in memory, a journal of what is not
// synced, and a durable part. Messages are a bag; each may arrive, arrive late, arrive after its client has given up, or
// never. Metadata writes succeed, conflict, or end with an unknown outcome and may land later.
//
// The invariants are those of the protocol's specification, I1 to I21 where they can be seen from here, after every
// event; at the end, with all trouble over, every ledger must be recoverable.
//
// Nothing in it is safe for concurrent use; it starts no goroutine.
package cores
