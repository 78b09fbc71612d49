// Package offload keeps closed ledgers in object stores: packed into blocks and cells, Reed-Solomon coded over failure domains, and read
// back bit for bit, the headers and digests of entries included. docs/formats/offload.md has every byte; package protocol has the rules by
// which a ledger moves; objstore is what it asks of a store.
//
// # What others call
//
//	targets, _ := offload.NewTargets([]offload.Target{{ID: "t1", Domain: "rack1", Store: store}, ...})
//	records := offload.NewRecords(views)                  // the offload records beside a cluster's ledgers
//
//	w, _ := offload.NewWorker(offload.Options{Records: records, Targets: targets, Entries: source, Dir: dir})
//	w.Unfinished()                                        // after a start: call Offload for each
//	w.Offload(ctx, id)                                    // bookies -> tier, COMPLETE
//	w.Release(ctx, id, false)                             // after the lag: the tier alone, RELEASED
//	w.Delete(ctx, id)                                     // gone for everybody, DELETING
//	w.Clean(ctx)                                          // the janitor's round; every few minutes on one worker
//	w.Verify / w.Scrub / w.Repair / w.Orphans / w.Adopt   // see each
//
//	r, _ := offload.NewReader(offload.ReaderOptions{Records: records, Targets: targets})
//	h, err := r.Open(ctx, id)                             // ErrNotOffloaded: the bookies have it; metadata.ErrNoLedger: deleted
//	h.Metadata(), h.LastEntry(), h.Length()               // as the ledger's record had them, with the password
//	h.Entry(ctx, e)                                       // one entry; reads ahead for sequential callers
//	h.Entries(ctx, first, last)                           // a range, one GET per cell, the next cells under way
//	entry.AppendBody(nil, id)                             // the body that a bookie would return; digest.Open checks it
//
//	records.MayCreate(ctx, id)                            // before a ledger is created under an id, chosen or drawn
//
// The package reads bookies through the iterator it is handed (EntrySource) and knows no client. A reader whose bookies say "no such
// ledger" or "no such entry" must ask the tier before it believes them: a release may just have happened.
//
// # Invariants
//
//   - An attempt's id is in the record before its first byte is sent, and names follow from the id: whatever happens, somebody finds it.
//   - COMPLETE is written only after all objects were read back as Options.Verify says, and only onto the ledger's record as it was
//     uploaded. RELEASED deletes the ledger's record in the same transaction, at the version read before every object was looked at.
//   - No object is overwritten with other bytes; a worker deletes nothing, the janitor only what is garbage, replaced or DELETING.
//   - A block that is returned has passed its CRC and the index's CRC, count and first entry. Fewer than k good shards are ErrUnavailable or
//     a *corrupt.Error, never "no such entry".
//   - A resumed attempt trusts its own checkpoints and nothing that a store lists.
//
// # Goroutines, memory, limits
//
// A Worker has none of its own; an Offload has at most Options.InFlight that send parts, one per stripe that waits for them, and one that
// watches its lock, all joined before it returns. A Reader has none; a read joins its requests, those that lost a race too, which end with
// their context. Memory: (shards + InFlight) cells per upload, within Options.MemoryBytes for all, and one cell of each shard per
// verification or repair, all off the heap; some 110 bytes for each block of an upload, its notes in the log included; two caches bounded by
// bytes. Limits: 16 data and 8 parity shards, cells of 6 to 64 MiB, 10,000 stripes, blocks of 16 MiB, manifests of 256 MiB, records of
// 512 KiB, 8 abandoned attempts a ledger.
package offload
