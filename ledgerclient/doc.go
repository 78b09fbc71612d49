// Package ledgerclient writes and reads replicated ledgers on BookKeeper-compatible bookies.
//
//	client, err := ledgerclient.Dial(ctx, "etcd://127.0.0.1:2379/ledgers", nil)
//	w, err := client.Create(ctx, ledgerclient.CreateOptions{})
//	id, err := w.Append(ctx, []byte("hello"))   // an ack quorum holds it durably
//	err = w.Close(ctx)                          // the ledger ends here, for ever
//	r, err := client.Open(ctx, w.ID(), ledgerclient.OpenOptions{Recover: true})
//	for e, err := range r.Entries(ctx, 0, r.LastAddConfirmed()) { ... }
//
// A ledger has one writer, the client that created it. If the writer is gone, opening the ledger with Recover fences it
// on its bookies, agrees the end and seals it; whatever an Append reported as done is in it.
//
// The protocol's rules are the cores of internal/ledger; this package moves their bytes. Guarantees:
//   - A nil error from Append means that an ack quorum holds the entry durably and every earlier entry is confirmed.
//   - An error from Append, a cancelled context included, means that the outcome is unknown: the entry may still be there
//     when the ledger is recovered. It never means that the entry is absent.
//   - Done functions of AppendAsync run in entry order, one at a time, holding no lock.
//   - A read returns only entries whose digest and ids are right, and never passes the LAC.
//   - Every wait is bounded by a context or a documented time-out, memory for adds by Options.MaxPendingBytes.
//   - An error names every bookie that took part in it and what each of them answered (*QuorumError, *BookieError).
//
// How it gets along with bookies that are ill:
//   - One that fails an add is replaced, in the record first, and stays out of ensembles for a while that grows with each
//     failure; afterwards it is chosen less often until the failures have faded.
//   - One that answers, but lags behind the ack quorum, is replaced before what waits for it holds all memory.
//   - One that owes an answer and sends nothing is pinged, then given up within Options.PeerTimeout.
//   - A read that takes longer than its bookie usually does is sent to the next one too, on a credit of one in ten; readers
//     stay with the bookie that answers, and ask last those that are much slower than the others.
//
// Goroutines: one per Client watches the registered bookies and one keeps time; one loop per open Writer owns its core,
// and one runs the done functions of AppendAsync; one per AdvancedWriter waits for its end; per bookie and protocol form
// there is a connection with a sender and a receiver. Close of the Client ends all of them.
package ledgerclient
