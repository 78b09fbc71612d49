package offload

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/offload/objstore"
	"github.com/binderylog/bindery/offload/objstore/faulty"
	"github.com/binderylog/bindery/offload/objstore/mem"
	"github.com/binderylog/bindery/offload/protocol"
)

// TestDamageOnTheWayIsNotTakenForDamage: whatever is read once with a flipped bit is read again before anything follows from it.
func TestDamageOnTheWayIsNotTakenForDamage(t *testing.T) {
	w := newWorld(t, "a", "b", "c")
	x := w.worker("w", func(o *Options) { o.Geometry = Geometry{2, 1} })
	defer x.Close()
	l := w.add(ledgerSpec{sizes: even(500, 1000)})
	for _, f := range w.faults { // the manifest is read back after its put, and once more to verify; then comes the cell
		f.Set(faulty.On(objstore.OpGet, faulty.OnKey("-g0", faulty.Nth(1, faulty.Flip(1000)))))
	}
	require.NoError(t, x.Offload(t.Context(), l.id), "a flipped bit of one read does not end the attempt")
	require.EqualValues(t, 1, w.record(l.id).Number)
	require.EqualValues(t, 3, x.m.crcFailures.sum.Load(), "it is counted")
	var text strings.Builder
	x.m.write(&text)
	require.Contains(t, text.String(), `bindery_offload_crc_failures_total{target="t1"} 1`)
	for _, level := range []VerifyLevel{VerifySample, VerifyFull} {
		for _, f := range w.faults {
			f.Set(faulty.On(objstore.OpGet, faulty.OnKey("-g0", faulty.Nth(1, faulty.Flip(1000)))))
		}
		findings, err := x.Verify(t.Context(), l.id, level)
		require.NoError(t, err)
		require.Empty(t, findings)
		for _, f := range w.faults {
			f.Set(faulty.On(objstore.OpGet, faulty.OnKey("manifest", faulty.Nth(2, faulty.Flip(1000)))))
		}
		findings, err = x.Verify(t.Context(), l.id, level)
		require.NoError(t, err)
		require.Empty(t, findings)
	}
	for _, f := range w.faults {
		f.Set(faulty.On(objstore.OpGet, faulty.OnKey("-g0", faulty.Always(faulty.Flip(1000)))))
	}
	findings, err := x.Verify(t.Context(), l.id, VerifyFull)
	require.NoError(t, err)
	require.Len(t, findings, 4, "twice is damage, and too much of it")
	require.Equal(t, FindingCell, findings[0].Kind)
}

// TestARepairWhoseTargetDiedTakesAnother: neither the target that was planned nor the next one takes the shard.
func TestARepairWhoseTargetDiedTakesAnother(t *testing.T) {
	w, l := offloaded(t, 6, Geometry{2, 1}, ledgerSpec{sizes: even(500, 1000)})
	x := w.worker("r", func(o *Options) { o.Geometry = Geometry{2, 1} })
	defer x.Close()
	held := map[string]bool{}
	for _, p := range w.record(l.id).Placement {
		held[p.Target] = true
	}
	var free []string
	for _, p := range w.targets.Places() {
		if !held[p.Target] {
			free = append(free, p.Target)
		}
	}
	require.Len(t, free, 3)
	// A repair was cut off after it had planned to write to a target that is dead since; the shard's own target is gone, too.
	r, v, err := w.records.Read(t.Context(), l.id)
	require.NoError(t, err)
	r.Placement[1].Move = &Move{Target: free[0], Generation: 1}
	_, err = w.records.Write(t.Context(), l.id, r, v, LedgerCond{})
	require.NoError(t, err)
	own, _ := w.shard(l, 1)
	for _, dead := range []string{own, free[0], free[1]} {
		w.faults[dead].Set(faulty.Always(faulty.Fail(objstore.KindUnreachable)))
	}
	out, err := x.Repair(t.Context(), l.id, RepairOptions{})
	require.NoError(t, err)
	require.Equal(t, []int{1}, out.Shards)
	p := w.record(l.id).Placement[1]
	require.Equal(t, free[2], p.Target, "a domain that holds none of the ledger's")
	require.Nil(t, p.Move)
	require.Greater(t, p.Generation, uint32(1), "no name is used twice")
	findings, err := x.Verify(t.Context(), l.id, VerifyFull)
	require.NoError(t, err)
	require.Empty(t, findings)
	w.requireReadable(l)
	for _, f := range w.faults {
		f.Set(nil)
	}
	w.janitor(x)
	w.requireClean()

	// With no target left the error says what was tried and what to do.
	target, key := w.shard(l, 0)
	require.NoError(t, w.stores[target].Delete(t.Context(), key))
	for _, f := range w.faults {
		f.Set(faulty.On(objstore.OpPut, faulty.Always(faulty.Fail(objstore.KindFull))))
	}
	_, err = x.Repair(t.Context(), l.id, RepairOptions{})
	require.ErrorContains(t, err, "no other target can be written to: bring one back, or add one")
	require.ErrorContains(t, err, "write to target "+free[0])
	require.Equal(t, StateComplete, w.record(l.id).State)
	for _, f := range w.faults {
		f.Set(nil)
	}
	_, err = x.Repair(t.Context(), l.id, RepairOptions{})
	require.NoError(t, err)
	w.janitor(x)
	w.requireClean()
}

// TestUploadsThatNobodyNotedAreAborted: the reply to their creation was lost, or a crash came between it and its note.
func TestUploadsThatNobodyNotedAreAborted(t *testing.T) {
	w := newWorld(t, "a", "b", "c", "d")
	l := w.add(crashLedgers()["two stripes"])
	x := w.worker("w", func(o *Options) { o.Geometry = Geometry{2, 1} })
	defer x.Close()
	lost := func() {
		for _, f := range w.faults {
			f.Set(faulty.On(objstore.OpCreate, faulty.Nth(1, faulty.LostReply())))
		}
	}
	open := func() (n int) {
		for _, s := range w.stores {
			n += len(s.Uploads())
		}
		return n
	}
	lost()
	require.Error(t, x.Offload(t.Context(), l.id))
	require.Positive(t, open())
	require.NoError(t, x.Offload(t.Context(), l.id))
	w.requireClean()

	target, key := w.shard(l, 1)
	require.NoError(t, w.stores[target].Delete(t.Context(), key))
	lost()
	_, err := x.Repair(t.Context(), l.id, RepairOptions{})
	for err != nil { // each try loses the reply of one more target
		require.Positive(t, open())
		_, err = x.Repair(t.Context(), l.id, RepairOptions{})
	}
	w.janitor(x)
	w.requireClean()
	w.requireReadable(l)
}

// TestScrubComparesWithTheBookies as long as both have the ledger.
func TestScrubComparesWithTheBookies(t *testing.T) {
	w, l := offloaded(t, 3, Geometry{2, 1}, ledgerSpec{sizes: even(500, 1000)})
	x := w.worker("s", func(o *Options) { o.Geometry = Geometry{2, 1} })
	defer x.Close()
	scrub := func() (found []Finding, done Scrubbed) {
		done, err := x.Scrub(t.Context(), ScrubOptions{Repair: true, Found: func(f Finding) { found = append(found, f) }})
		require.NoError(t, err)
		return found, done
	}
	found, done := scrub()
	require.Empty(t, found)
	require.Empty(t, done.Problems)
	require.Equal(t, 2, w.reads[499], "once to offload, once to compare")

	// The bookies' entry 300 is another one, with a digest that is right.
	other := makeLedger(t, ledgerSpec{seed: 9, sizes: even(500, 1000)})
	mine := l.bodies[300]
	d := l.entry(t, 300)
	d.Payload = other.entry(t, 300).Payload
	l.bodies[300] = d.AppendBody(nil, l.id)
	found, done = scrub()
	require.Len(t, found, 1)
	require.Equal(t, FindingContent, found[0].Kind)
	require.ErrorContains(t, found[0].Err, "entry 300 is not what the bookies hold")
	require.Zero(t, done.Repaired, "there is nothing to rebuild it from")
	l.bodies[300] = mine

	w.readErr = errBookiesDown
	found, done = scrub()
	require.Empty(t, found, "bookies that can not be read say nothing about the tier")
	require.Len(t, done.Problems, 1)
	require.ErrorContains(t, done.Problems[0], "could not be compared with its bookies")
	require.Equal(t, w.now().UnixMilli(), w.record(l.id).VerifiedAt, "the tier was looked at all the same")

	require.NoError(t, x.Release(t.Context(), l.id, true))
	reads := w.reads[0]
	found, done = scrub()
	require.Empty(t, found)
	require.Empty(t, done.Problems)
	require.Equal(t, reads, w.reads[0], "bookies have it no longer")
	findings, err := x.VerifyAgainstBookies(t.Context(), l.id)
	require.NoError(t, err)
	require.Empty(t, findings)
	_, err = x.VerifyAgainstBookies(t.Context(), ledger.ID(99))
	require.ErrorIs(t, err, ErrNotOffloaded)
}

// TestStatusShowsStagesRedundancyAndAge: what a console asks for.
func TestStatusShowsStagesRedundancyAndAge(t *testing.T) {
	w, l := offloaded(t, 5, Geometry{2, 2}, ledgerSpec{sizes: even(500, 1000)})
	x := w.worker("s", func(o *Options) { o.Geometry = Geometry{2, 2} })
	defer x.Close()
	second := w.add(ledgerSpec{seed: 1, sizes: even(500, 1000)})
	var during Status
	w.onRead = func(e ledger.EntryID) {
		if e == 100 {
			w.onRead = nil
			var err error
			during, err = x.Status(t.Context(), -1, 10)
			require.NoError(t, err)
		}
	}
	require.NoError(t, x.Offload(t.Context(), second.id))
	require.Len(t, during.Ledgers, 2)
	require.Equal(t, StageUploading, during.Ledgers[1].Stage)
	require.Equal(t, "UPLOADING", during.Ledgers[1].State)
	require.EqualValues(t, 100_000, during.Ledgers[1].Done)
	require.EqualValues(t, 500_000, during.Ledgers[1].Total)

	target, key := w.shard(l, 1)
	require.NoError(t, w.stores[target].Delete(t.Context(), key))
	w.advance(3 * time.Hour)
	_, err := x.Verify(t.Context(), l.id, VerifyHead)
	require.NoError(t, err)
	_, err = x.Clean(t.Context())
	require.NoError(t, err)
	s, err := x.Status(t.Context(), -1, 10)
	require.NoError(t, err)
	require.Equal(t, map[string]int{"COMPLETE": 2}, s.States)
	require.Equal(t, map[string]int{"1": 1, "2": 1}, s.Redundancy)
	require.Equal(t, 1, s.Degraded)
	require.InDelta(t, 3*3600, s.ScrubAge, 1)
	require.EqualValues(t, 1_000_000, s.Payload)
	require.InDelta(t, 2_000_000, s.Stored, 100_000)
	require.Equal(t, 1, s.Ledgers[0].Missing)
	require.Equal(t, 1, *s.Ledgers[0].Redundancy)
	require.InDelta(t, 3*3600, *s.Ledgers[0].ScrubAge, 1)
	var text strings.Builder
	x.WriteMetrics(&text)
	for _, line := range []string{
		`bindery_offload_ledgers{state="COMPLETE"} 2`, `bindery_offload_ledgers_by_redundancy{left="1"} 1`, `bindery_offload_ledgers_by_redundancy{left="2"} 1`,
		`bindery_offload_ledgers_degraded 1`, `bindery_offload_shards_missing 1`, `bindery_offload_scrub_oldest_seconds 10800`, `bindery_offload_payload_bytes 1000000`,
		`bindery_offload_releasable_bytes 500000`,
	} {
		require.Contains(t, text.String(), line+"\n")
	}

	// Statement 23: why a ledger is not released is seen.
	err = x.Release(t.Context(), l.id, true)
	require.Error(t, err)
	x.health.moved(l.id, err)
	x.m.refused(err)
	s, err = x.Status(t.Context(), -1, 1)
	require.NoError(t, err)
	require.Contains(t, s.Ledgers[0].Problem, "missing")
	require.EqualValues(t, l.id, *s.Next)
	text.Reset()
	x.WriteMetrics(&text)
	require.Contains(t, text.String(), "bindery_offload_ledgers_failed_total{reason=")

	_, err = x.Repair(t.Context(), l.id, RepairOptions{})
	require.NoError(t, err)
	require.NoError(t, x.Release(t.Context(), l.id, true))
	x.health.moved(l.id, nil)
	s, err = x.Status(t.Context(), l.id, 10)
	require.NoError(t, err)
	require.Len(t, s.Ledgers, 1, "those behind it")
	s, err = x.Status(t.Context(), -1, 10)
	require.NoError(t, err)
	require.Equal(t, 2, *s.Ledgers[0].Redundancy)
	require.Empty(t, s.Ledgers[0].Problem)
	require.Equal(t, "RELEASED", s.Ledgers[0].State)
}

// TestWhatIsOnNoConfiguredTargetIsNotWhole: neither shards nor copies of the manifest that this process has no way to.
func TestWhatIsOnNoConfiguredTargetIsNotWhole(t *testing.T) {
	w, l := offloaded(t, 6, Geometry{4, 2}, ledgerSpec{sizes: even(3000, 100)})
	small := w.add(ledgerSpec{seed: 1, sizes: even(3, 10)})
	x := w.worker("a", nil)
	require.NoError(t, x.Offload(t.Context(), small.id))
	require.NoError(t, x.Close())
	require.True(t, w.record(small.id).Inline)
	states := func(keep func(id string) bool, extra ...Target) (Status, string) {
		list := extra
		for _, p := range w.targets.Places() {
			if keep(p.Target) {
				list = append(list, Target{ID: p.Target, Store: w.faults[p.Target]})
			}
		}
		targets, err := NewTargets(list)
		require.NoError(t, err)
		x := w.worker("s"+fmt.Sprint(len(list)), func(o *Options) { o.Targets, o.Geometry, o.Tolerated = targets, Geometry{1, 0}, -1 })
		defer x.Close()
		s := NewService(x, ServiceOptions{})
		defer s.Close()
		s.wanted()
		status, err := x.Status(t.Context(), -1, 10)
		require.NoError(t, err)
		var text strings.Builder
		x.WriteMetrics(&text)
		return status, text.String()
	}
	shard := w.record(l.id).Placement[0].Target
	s, text := states(func(id string) bool { return id != shard })
	require.Equal(t, 1, *s.Ledgers[0].Redundancy)
	require.Equal(t, 1, s.Ledgers[0].Missing)
	require.Contains(t, text, "bindery_offload_ledgers_unreadable 0\n")
	s, text = states(func(string) bool { return false }, Target{ID: "other", Store: mem.New()})
	require.Equal(t, map[string]int{"-1": 2}, s.Redundancy)
	require.Equal(t, 6, s.Ledgers[0].Missing)
	require.Contains(t, text, "bindery_offload_ledgers_unreadable 2\n")
	require.Contains(t, text, "bindery_offload_ledgers_degraded 2\n")
	require.Contains(t, text, "bindery_offload_ledgers_by_redundancy{left=\"2\"} 0\n")

	// All copies of the manifest lost: a look at it says so.
	x = w.worker("b", nil)
	defer x.Close()
	r := w.record(l.id)
	for _, target := range r.Manifest.Targets {
		require.NoError(t, w.stores[target].Delete(t.Context(), ManifestName(r.Attempt, l.id)))
	}
	_, err := x.Verify(t.Context(), l.id, VerifyHead)
	require.ErrorIs(t, err, ErrUnavailable)
	_, err = x.Clean(t.Context())
	require.NoError(t, err)
	s, err = x.Status(t.Context(), -1, 10)
	require.NoError(t, err)
	require.Equal(t, -1, *s.Ledgers[0].Redundancy)
	require.Equal(t, map[string]int{"-1": 1, "2": 1}, s.Redundancy)
}

// TestNothingIsNamedTwice: errors say once which ledger and which target they are about.
func TestNothingIsNamedTwice(t *testing.T) {
	at := &objstore.Error{Kind: objstore.KindUnreachable, Target: "t5", Op: objstore.OpHead, Key: "k", Err: errors.New("connection refused")}
	require.Equal(t, at.Error(), onTarget("t5", at).Error())
	require.Equal(t, "target t5: other", onTarget("t5", errors.New("other")).Error())
	require.ErrorIs(t, onTarget("t4", at), at)
	require.Equal(t, "shard 2 on target t5: head k: unreachable: connection refused", (&shardError{shard: 2, target: "t5", err: at}).Error())
	require.Equal(t, "ledger 9: unreachable: k on target t5: head k: unreachable: connection refused", Finding{Ledger: 9, Kind: FindingUnchecked, Target: "t5", Object: "k", Err: at}.String())
	stopped := &StoppedError{Ledger: 9, Reason: protocol.Busy, Err: ofLedger(9, ErrNotOffloaded)}
	require.Equal(t, 1, strings.Count(stopped.Error(), "ledger 9: "))
	require.Equal(t, stopped.Error(), ofLedger(9, stopped).Error())
}

// TestALookIsRemembered: what it found lost stands in the record until a full look or a repair finds it well, and a ledger that can not be
// read is called so.
func TestALookIsRemembered(t *testing.T) {
	w, l := offloaded(t, 6, Geometry{4, 2}, ledgerSpec{sizes: even(3000, 100)})
	x := w.worker("x", nil)
	defer x.Close()
	unreadable := func(level VerifyLevel) (out []string) {
		findings, err := x.Verify(t.Context(), l.id, level)
		require.NoError(t, err)
		for _, f := range findings {
			if f.Kind == FindingLost {
				out = append(out, f.String())
			}
		}
		return out
	}
	lost := func() int { return w.record(l.id).Lacking() }
	target, key := w.shard(l, 0)
	require.NoError(t, w.stores[target].Delete(t.Context(), key))
	require.Empty(t, unreadable(VerifyHead))
	require.Equal(t, 1, lost())
	second, other := w.shard(l, 1)
	w.damage(second, other, 50)
	require.Empty(t, unreadable(VerifyFull))
	require.Equal(t, 2, lost())
	require.Empty(t, unreadable(VerifyHead))
	require.Equal(t, 2, lost(), "bytes were not looked at")
	third, away := w.shard(l, 2)
	w.faults[third].Set(faulty.OnKey(away, faulty.Always(faulty.Fail(objstore.KindUnreachable))))
	require.Equal(t, []string{fmt.Sprintf("ledger %d: unreadable: 3 of 6 shards are good, 4 are needed", l.id)}, unreadable(VerifyFull))
	require.Equal(t, 2, lost(), "out of reach is not lost")
	w.healed()
	require.Zero(t, w.record(l.id).Missing(), "what an attempt or a repair left out is another matter")
	done, err := x.Repair(t.Context(), l.id, RepairOptions{})
	require.NoError(t, err)
	require.Equal(t, []int{0, 1}, done.Shards)
	require.Zero(t, lost())
	// A shard that comes back by itself.
	w.faults[third].Set(faulty.OnKey(away, faulty.Always(faulty.Fail(objstore.KindNotFound))))
	require.Empty(t, unreadable(VerifyHead))
	require.Equal(t, 1, lost())
	w.healed()
	done, err = x.Repair(t.Context(), l.id, RepairOptions{})
	require.NoError(t, err)
	require.Empty(t, done.Shards)
	require.Zero(t, lost())
	w.requireReadable(l)
}

// TestReleaseWaitsForARepair: a look at what is in a shard found it damaged. The bookies keep the ledger until it is repaired, though every
// object is there.
func TestReleaseWaitsForARepair(t *testing.T) {
	w, l := offloaded(t, 6, Geometry{4, 2}, ledgerSpec{sizes: even(3000, 100)})
	x := w.worker("x", nil)
	defer x.Close()
	target, key := w.shard(l, 3)
	w.damage(target, key, 50)
	findings, err := x.Verify(t.Context(), l.id, VerifyFull)
	require.NoError(t, err)
	require.NotEmpty(t, findings)
	err = x.Release(t.Context(), l.id, true)
	var stopped *StoppedError
	require.ErrorAs(t, err, &stopped)
	require.ErrorContains(t, err, fmt.Sprintf("shard 3 on target %s was found damaged or gone: `bindery offload repair %d`", target, l.id))
	require.Equal(t, StateComplete, w.record(l.id).State)
	_, err = x.Repair(t.Context(), l.id, RepairOptions{})
	require.NoError(t, err)
	require.NoError(t, x.Release(t.Context(), l.id, true))
	require.Equal(t, StateReleased, w.record(l.id).State)
	w.requireReadable(l)
}

var errBookiesDown = errors.New("bookies are down")

// TestACopyOfTheManifestThatCameAnywayIsCleaned: a target took the copy that it said it did not take, and the copy that was to be replaced
// stays. The simulator found it.
func TestACopyOfTheManifestThatCameAnywayIsCleaned(t *testing.T) {
	w, l := offloaded(t, 4, Geometry{2, 1}, ledgerSpec{sizes: even(500, 1000)})
	x := w.worker("r", func(o *Options) { o.Geometry = Geometry{2, 1} })
	defer x.Close()
	named := w.record(l.id).Manifest.Targets
	require.Len(t, named, 2)
	key := ManifestName(w.record(l.id).Attempt, l.id)
	for target, f := range w.faults {
		switch target {
		case named[0]:
		case named[1]:
			f.Set(faulty.On(objstore.OpHead, faulty.Always(faulty.Fail(objstore.KindUnreachable))))
		default: // nor can it be seen that the copy is there
			f.Set(faulty.OnKey("manifest", faulty.All(
				faulty.On(objstore.OpPut, faulty.Always(faulty.LostReply())),
				faulty.On(objstore.OpHead, faulty.Always(faulty.Fail(objstore.KindUnreachable))),
				faulty.On(objstore.OpGet, faulty.Always(faulty.Fail(objstore.KindUnreachable))))))
		}
	}
	_, err := x.Repair(t.Context(), l.id, RepairOptions{Level: VerifyHead})
	require.Error(t, err)
	require.ElementsMatch(t, named, w.record(l.id).Manifest.Targets, "it is given up for another one only")
	came := 0
	for target := range w.stores {
		if _, err := w.stores[target].Head(t.Context(), key); err == nil {
			came++
		}
	}
	require.Greater(t, came, 2, "copies came anyway")
	w.healed()
	w.janitor(x)
	w.requireClean()
	require.ElementsMatch(t, named, w.record(l.id).Manifest.Targets)
	w.requireReadable(l)
}
