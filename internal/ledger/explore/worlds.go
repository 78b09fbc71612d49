package explore

import "github.com/binderylog/bindery/internal/ledger"

var (
	q332 = ledger.Quorum{Ensemble: 3, Write: 3, Ack: 2}
	q333 = ledger.Quorum{Ensemble: 3, Write: 3, Ack: 3}
	q322 = ledger.Quorum{Ensemble: 3, Write: 2, Ack: 2}
	q222 = ledger.Quorum{Ensemble: 2, Write: 2, Ack: 2}
	q211 = ledger.Quorum{Ensemble: 2, Write: 1, Ack: 1}
	q321 = ledger.Quorum{Ensemble: 3, Write: 2, Ack: 1}
)

// written is the set-up of a ledger whose entry 0 is on A, B and C and acknowledged.
var written = []string{"append W", "do W>A add e0", "do W>B add e0", "do W>C add e0"}

// closed is that of one that is CLOSED, too.
var closed = append(append([]string(nil), written...), "close W", "meta W ok")

// closed2 is that of a CLOSED ledger with e0 on A and B.
var closed2 = []string{"append W", "do W>A add e0", "do W>B add e0", "close W", "meta W ok"}

// committed is that of the same ledger with its offload record COMPLETE.
var committed = append(append([]string(nil), closed2...), "tier: worker 1 begins", "tier: worker 1 reads", "tier: worker 1 writes UPLOADING", "tier: worker 1 reads",
	"tier: worker 1 sends the first objects of a1", "tier: worker 1 completes a1", "tier: worker 1 reads", "tier: worker 1 writes COMPLETE", "tier: worker 1 reads")

// moved is that of a ledger with e0 on A and B, and an empty last fragment on C and D.
var moved = []string{"append W", "do W>A add e0", "do W>B add e0", "append W", "timeout W>A add e1", "pick W C", "timeout W>B add e1", "meta W ok", "pick W D", "meta W ok"}

// doubted is that of a ledger on A and B, with an add of e0 under way to B, which was emptied, named anew and reads the record.
var doubted = []string{"append W", "do W>A add e0", "timeout W>B add e0", "pick W C", "meta W ok", "deliver W>B add e0 (given up)", "wipe B",
	"timeout W>C add e0", "pick W B", "meta W ok", "deliver W>B add e0"}

// twoFragments is the set-up of a ledger with e0 on A, B, C and the rest on A, B, D.
var twoFragments = append(append([]string(nil), written...), "append W", "timeout W>C add e1", "pick W D", "meta W ok")

// Worlds are those that complete. They are listed from the cheapest to the dearest.
func Worlds() []Spec {
	return []Spec{
		{Name: "closed-replicator", About: "CLOSED, one wipe, a replicator that copies back in place or to a spare", Quorum: q332, Bookies: 4, Replicators: 1,
			Budget: Budget{Wipes: 1}, Setup: closed, NoWriter: true, Collect: true},
		{Name: "striped-writer", About: "every entry on one bookie of two, changes", Quorum: q211, Bookies: 3, Entries: 4, Budget: Budget{Timeouts: 2, Unknowns: 1}},
		{Name: "explicit-lac", About: "explicit LACs, a tail reader, a recoverer", Quorum: q222, Bookies: 2, Entries: 2, Recoverers: 1, Readers: 1,
			Budget: Budget{LACTicks: 1, Reads: 3}},
		{Name: "forced", About: "deferred sync, force, a power cut", Quorum: q332, Bookies: 3, Entries: 1, Deferred: true, Budget: Budget{Forces: 2, PowerCuts: 1, Closes: 1}},
		{Name: "forced-unmarked", About: "the same with bookies that keep no mark of deferred adds", Quorum: q222, Bookies: 2, Entries: 2, Deferred: true, Unmarked: true,
			Budget: Budget{Forces: 2, PowerCuts: 1}},
		{Name: "split-readd", About: "re-adds, volatile and durable state, a power cut, a dead writer", Quorum: q332, Bookies: 3, Recoverers: 1, Split: true,
			Budget: Budget{PowerCuts: 1, Kills: 1}, Setup: []string{"append W", "deliver W>A add e0"}, NoWriter: true},
		{Name: "split", About: "writer, recoverer, volatile and durable state, a power cut", Quorum: q332, Bookies: 3, Entries: 1, Recoverers: 1, Split: true,
			Budget: Budget{PowerCuts: 1}},
		{Name: "split-wipe", About: "the same with a power cut and a wipe, two of two bookies", Quorum: q222, Bookies: 3, Entries: 1, Recoverers: 1, Split: true,
			Budget: Budget{PowerCuts: 1, Wipes: 1}},
		{Name: "faults", About: "a disk that fails a read, a dead writer", Quorum: q332, Bookies: 3, Recoverers: 1, Budget: Budget{Faults: 1}, LostReads: true,
			Setup: []string{"append W", "do W>A add e0", "do W>B add e0"}, NoWriter: true},
		{Name: "two-fragments", About: "an empty last fragment elsewhere, a recoverer, changes, a dead writer", Quorum: q222, Bookies: 5, Recoverers: 1, Budget: Budget{Timeouts: 1},
			Setup: moved, NoWriter: true},
		{Name: "changes", About: "writer only, two entries, two failures", Quorum: q332, Bookies: 4, Entries: 2, Budget: Budget{Timeouts: 2}, PickNone: true},
		{Name: "unknown", About: "metadata outcomes of a writer: answer lost, not applied, landing late, no answer at all", Quorum: q332, Bookies: 4, Entries: 1,
			Budget: Budget{Timeouts: 1, Unknowns: 2, MetaTimeouts: 1, Closes: 1}, PickSame: true},
		{Name: "unknown-recovery", About: "the same of a writer and a recoverer", Quorum: q222, Bookies: 3, Entries: 1, Recoverers: 1,
			Budget: Budget{Timeouts: 1, Unknowns: 3}},
		{Name: "ahead", About: "a recoverer that reads ahead, two entries, changes, a dead writer", Quorum: q222, Bookies: 3, Recoverers: 1, ReadAhead: 2,
			Budget: Budget{Timeouts: 1}, Setup: []string{"append W", "append W"}, NoWriter: true},
		{Name: "striped", About: "every entry on two bookies of three, writer, recoverer, changes of both", Quorum: q322, Bookies: 4, Entries: 2, Recoverers: 1, Pending: 1,
			Budget: Budget{Timeouts: 1}},
		{Name: "two-fragments-all", About: "two fragments, two recoverers, a replicator of the first, collectors, one wipe, a dead writer", Quorum: q222, Bookies: 4, Recoverers: 2,
			Replicators: 1, Collect: true, Budget: Budget{Wipes: 1}, Setup: append(append([]string(nil), moved...), "drop W>A add e1 (given up)",
				"drop W>B add e1 (given up)", "drop W>C add e1", "drop W>D add e1"), NoWriter: true},
		{Name: "recoverers", About: "two recoverers, two entries, a dead writer, two of two bookies", Quorum: q222, Bookies: 2, Recoverers: 2,
			Setup: []string{"append W", "append W"}, NoWriter: true},
		{Name: "two-entries", About: "two recoverers, two entries that one bookie has, a dead writer", Quorum: q332, Bookies: 3, Recoverers: 2, Prompt: true,
			Setup: []string{"append W", "append W", "deliver W>A add e0", "deliver W>A add e1", "drop W>B add e0", "drop W>C add e0", "drop W>B add e1", "drop W>C add e1"}, NoWriter: true},
		{Name: "live-replicator", About: "a live writer and a replicator of the first fragment, one wipe, one failure", Quorum: q332, Bookies: 4, Replicators: 1,
			Budget: Budget{Wipes: 1, Timeouts: 1}, Setup: twoFragments},
		{Name: "collector", About: "CLOSED, two replicators, a lock that is lost, a collector, two wipes", Quorum: q332, Bookies: 4, Replicators: 2, LockLoss: true, Collect: true,
			Budget: Budget{Wipes: 2}, Setup: closed, NoWriter: true},
		{Name: "deleted", About: "a live writer, a recoverer, deletion, collectors", Quorum: q222, Bookies: 2, Entries: 1, Recoverers: 1, Collect: true,
			Budget: Budget{Deletes: 1}},
		{Name: "verify", About: "an add waits for the record to be read; a recoverer, deletion, collectors", Quorum: q222, Bookies: 3, Recoverers: 1, Collect: true,
			Budget: Budget{Deletes: 1}, Setup: doubted},
		{Name: "reused-replicator", About: "a bookie emptied under its id, to which a replicator copies back; a writer that knows of nothing, a recoverer, changes", Quorum: q222,
			Bookies: 3, Entries: 1, Recoverers: 1, Replicators: 1, Budget: Budget{Timeouts: 1, Wipes: 1}},
		{Name: "reused-deleted", About: "the same with deletion and collectors in place of the replicator and of changes", Quorum: q222, Bookies: 2, Entries: 1,
			Recoverers: 1, Collect: true, Budget: Budget{Wipes: 1, Deletes: 1}},
		{Name: "wipes", About: "all three must acknowledge, a dead writer, two wipes, changes", Quorum: q333, Bookies: 4, Recoverers: 1,
			Budget: Budget{Timeouts: 1, Wipes: 2}, Setup: []string{"append W", "do W>A add e0"}, NoWriter: true},
		{Name: "wipe-2", About: "writer, recoverer, changes of both, one wipe, two of two bookies", Quorum: q222, Bookies: 3, Entries: 1, Recoverers: 1,
			Budget: Budget{Timeouts: 1, Wipes: 1}, LostReads: true},
		{Name: "journal-2", About: "the same with a lost journal in place of the wipe", Quorum: q222, Bookies: 3, Entries: 1, Recoverers: 1,
			Budget: Budget{Timeouts: 1, Loses: 1}},
		{Name: "recovery", About: "writer, recoverer, changes of both", Quorum: q332, Bookies: 4, Entries: 1, Recoverers: 1, Budget: Budget{Timeouts: 1, Closes: 1}, LostReads: true},
		{Name: "wipe", About: "writer, recoverer, changes of both, one wipe", Quorum: q332, Bookies: 4, Entries: 1, Recoverers: 1, Budget: Budget{Timeouts: 1, Wipes: 1}},
		{Name: "tier-workers", About: "two workers offload one ledger: crashes, displaced ones that do not know, a sweep for orphans", Quorum: q222, Bookies: 2, NoWriter: true,
			Setup: closed2, Tier: true, TierWorkers: 2, LockLoss: true, Budget: Budget{Attempts: 2, TierCrashes: 1, Sweeps: 1}},
		{Name: "tier-unknown", About: "a worker, a release and an owner, writes of unknown outcome", Quorum: q222, Bookies: 2, NoWriter: true,
			Setup: closed2, Tier: true, LockLoss: true, Budget: Budget{Attempts: 2, TierUnknowns: 1, TierDeletes: 1}},
		{Name: "tier-damage", About: "stores that lose or change what they were given; the ledger is closed elsewhere by force", Quorum: q222, Bookies: 2, NoWriter: true,
			Setup: closed2, Tier: true, Budget: Budget{Attempts: 2, Damages: 1, Recloses: 1, TierCrashes: 1, TierUnknowns: 1}},
		{Name: "tier-replicator", About: "release beside a replicator, collectors, one wipe", Quorum: q222, Bookies: 3, Replicators: 1, Collect: true, NoWriter: true,
			Setup: committed, Tier: true, LockLoss: true, Budget: Budget{Wipes: 1, TierUnknowns: 1, Recloses: 1}},
		{Name: "tier-deleted", About: "deletion by the owner and by others at every step, collectors", Quorum: q222, Bookies: 2, Collect: true, NoWriter: true,
			Setup: closed2, Tier: true, Budget: Budget{Attempts: 1, TierDeletes: 1, Deletes: 1, TierCrashes: 1}},
		{Name: "tier-recovery", About: "a dead writer, a recoverer, a worker that comes as soon as the ledger is closed, release, collectors, a wipe", Quorum: q222, Bookies: 3, Recoverers: 1,
			Collect: true, NoWriter: true, Setup: []string{"append W", "append W", "deliver W>A add e0"}, Tier: true, Budget: Budget{Attempts: 1, Wipes: 1}},
	}
}

// Large are worlds that are not explored to their end: a search says how far it came, and random walks go beyond.
func Large() []Spec {
	return []Spec{
		{Name: "large-recoveries", About: "two recoverers, two entries, a writer, changes of all, a close", Quorum: q332, Bookies: 5, Entries: 2, Recoverers: 2,
			Budget: Budget{Timeouts: 2, Closes: 1}, LostReads: true},
		{Name: "large-losses", About: "the same with wipes, lost journals and unknown outcomes, in split time", Quorum: q332, Bookies: 5, Entries: 3, Recoverers: 2, Split: true,
			Budget: Budget{Timeouts: 3, Wipes: 1, PowerCuts: 2, Kills: 1, Unknowns: 2, Retries: 1, Closes: 1}, LostReads: true, PickNone: true, PickSame: true},
		{Name: "large-striped", About: "three entries on two bookies each, one acknowledgement is enough", Quorum: q321, Bookies: 5, Entries: 3, Recoverers: 2,
			Budget: Budget{Timeouts: 3, Closes: 1}, LostReads: true, PickNone: true},
		{Name: "large-everything", About: "writer, recoverer, replicator, reader, wipes, collectors, deletion", Quorum: q333, Bookies: 6, Entries: 2, Recoverers: 1, Replicators: 1,
			Readers: 1, Collect: true, LockLoss: true, Budget: Budget{Timeouts: 3, Wipes: 2, Deletes: 1, Reads: 6, Unknowns: 1}, LostReads: true},
		{Name: "large-tier", About: "a writer, a recoverer, a replicator, wipes, collectors, and all that the tier has but closes by force", Quorum: q332, Bookies: 5, Entries: 2, Recoverers: 1, Replicators: 1,
			Collect: true, LockLoss: true, Tier: true, TierWorkers: 2, Budget: Budget{Timeouts: 2, Wipes: 1, Deletes: 1, Closes: 1, Attempts: 3, TierCrashes: 2,
				TierUnknowns: 2, Damages: 1, TierDeletes: 1, Sweeps: 1}},
	}
}

// IsLarge reports whether a world is one of Large.
func IsLarge(name string) bool {
	for _, s := range Large() {
		if s.Name == name {
			return true
		}
	}
	return false
}

// World finds a world by name.
func World(name string) (Spec, bool) {
	for _, s := range append(Worlds(), Large()...) {
		if s.Name == name {
			return s, true
		}
	}
	return Spec{}, false
}
