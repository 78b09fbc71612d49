package ledger

import (
	"encoding/binary"
	"testing"
)

var (
	key   = []byte("12345678901234567890")
	other = []byte("abcdefghijklmnopqrst")
)

func TestReplicaOrderOfAddTests(t *testing.T) {
	full := Replica{Key: key, HasKey: true, Tombstone: true, Limbo: true, Fenced: true}
	r := full
	steps := []struct {
		name string
		key  []byte
		want Verdict
		drop func()
	}{
		{"wrong key", other, BadKey, func() {}},
		{"no key", nil, BadKey, func() {}},
		{"tombstone", key, NeedsVerify, func() { r.Tombstone = false }},
		{"limbo", key, RefusedLimbo, func() { r.Limbo = false }},
		{"fence", key, RefusedFenced, func() { r.Fenced = false }},
		{"unverified", key, NeedsVerify, func() { r.LossEpoch = 7 }},
		{"nothing left", key, Accepted, func() {}},
	}
	for _, s := range steps {
		if got := r.CheckAdd(s.key, false, 7); got != s.want {
			t.Errorf("%s: %v, want %v", s.name, got, s.want)
		}
		s.drop()
	}
	r = full
	if got := r.CheckAdd(key, true, 7); got != Accepted {
		t.Errorf("a recovery add is tested for its key only: %v", got)
	}
	if got := r.CheckAdd(other, true, 7); got != BadKey {
		t.Errorf("recovery add with a wrong key: %v", got)
	}
}

func TestReplicaFirstContactBindsKey(t *testing.T) {
	var r Replica
	if r.Known() || r.Read(false) != NoLedger {
		t.Fatal("the zero value is a ledger never seen")
	}
	if !r.Accept(key, false) || !r.Known() {
		t.Fatal("the first add binds the key")
	}
	if r.Accept(key, false) {
		t.Error("the second changes nothing")
	}
	if r.CheckAdd(other, false, 0) != BadKey || r.Read(false) != NoEntry || r.Read(true) != Serve {
		t.Error("a known ledger denies entries, not itself")
	}
}

func TestReplicaFenceIsForEver(t *testing.T) {
	var r Replica
	if v, changed := r.Fence(nil); v != BadKey || changed {
		t.Errorf("fence without a key: %v %v", v, changed)
	}
	if v, changed := r.Fence(key); v != Accepted || !changed {
		t.Fatalf("fence of an unknown ledger: %v %v", v, changed)
	}
	if !r.HasKey || r.Read(false) != NoEntry {
		t.Error("the fence creates the ledger with its key")
	}
	if v, changed := r.Fence(key); v != Accepted || changed {
		t.Errorf("the second fence: %v %v", v, changed)
	}
	if v := r.CheckAdd(key, false, 0); v != RefusedFenced {
		t.Errorf("add after the fence: %v", v)
	}
	r.Accept(key, true)
	if v := r.CheckAdd(key, false, 0); v != RefusedFenced {
		t.Errorf("add after a recovery add: %v", v)
	}
	r.Lose()
	r.EndLimbo()
	if v := r.CheckAdd(key, false, 0); v != RefusedFenced {
		t.Errorf("the fence stays when limbo ends: %v", v)
	}
}

func TestReplicaLimboClaimsNothing(t *testing.T) {
	r := Replica{Key: key, HasKey: true}
	if !r.Lose() || r.Lose() {
		t.Error("Lose changes once")
	}
	if r.Read(true) != Serve || r.Read(false) != UnknownAnswer || r.ReadLast(true) != UnknownAnswer {
		t.Error("in limbo an entry that is there is served, absence and ends are unknown")
	}
	if v, _ := r.Fence(key); v != Accepted {
		t.Errorf("a fence is taken: %v", v)
	}
	if v, _ := r.SetExplicitLAC(key, lacBody(3)); v != RefusedLimbo {
		t.Errorf("an explicit LAC is not: %v", v)
	}
	if r.CheckForce(0) != RefusedLimbo {
		t.Error("force can not vouch for lost entries")
	}
	if !r.EndLimbo() || r.ReadLast(false) != NoEntry {
		t.Error("after limbo absence is true again")
	}
}

func TestReplicaTombstone(t *testing.T) {
	r := Replica{Key: key, HasKey: true, Generation: 4}
	if r.Delete(3) {
		t.Error("a recovery add since the collector looked stops the delete")
	}
	if !r.Delete(4) || !r.Tombstone || r.Known() || r.Read(false) != NoLedger {
		t.Fatalf("after the delete: %+v", r)
	}
	if v, _ := r.SetExplicitLAC(key, lacBody(1)); v != RefusedDeleted {
		t.Errorf("explicit LAC on a tombstone: %v", v)
	}
	// A recovery add re-creates it fenced.
	a := *r.Clone()
	if a.CheckAdd(key, true, 0) != Accepted || !a.Accept(key, true) || !a.Fenced || a.Tombstone {
		t.Errorf("re-created by a recovery add: %+v", a)
	}
	// A fence does, too.
	b := *r.Clone()
	if v, changed := b.Fence(key); v != Accepted || !changed || !b.Fenced || b.Tombstone {
		t.Errorf("re-created by a fence: %v %+v", v, b)
	}
	// A recovery add to a ledger without a tombstone does not fence: a writer may choose this bookie next.
	var c Replica
	c.Accept(key, true)
	if c.CheckAdd(key, false, 0) != Accepted {
		t.Error("a recovery add to an unknown ledger must not fence it")
	}
	// But a bookie that lost something verifies it.
	if c.CheckAdd(key, false, 2) != NeedsVerify {
		t.Error("a ledger that recovery adds created is unverified")
	}
}

func TestReplicaVerifyRaces(t *testing.T) {
	r := Replica{Tombstone: true}
	ticket := r.Ticket()
	if v, _ := r.Verify(ticket, false, 3); v != RefusedFenced {
		t.Errorf("not open: %v", v)
	}
	// Fenced while the record was being read.
	a := *r.Clone()
	a.Fence(key)
	if v, changed := a.Verify(ticket, true, 3); v != RefusedFenced || changed {
		t.Errorf("fenced meanwhile: %v %v", v, changed)
	}
	// Fenced and deleted while the record was being read: the fence was answered, so the tombstone must stay.
	b := *r.Clone()
	b.Fence(key)
	if !b.Delete(b.Generation) {
		t.Fatal("delete")
	}
	if v, _ := b.Verify(ticket, true, 3); v != RefusedFenced || !b.Tombstone {
		t.Errorf("fenced and deleted meanwhile: %v", v)
	}
	if v, changed := r.Verify(ticket, true, 3); v != Accepted || !changed || r.CheckAdd(key, false, 3) != Accepted {
		t.Errorf("open: %v %v", v, changed)
	}
	if r.CheckAdd(key, false, 4) != NeedsVerify {
		t.Error("a later loss makes it unverified again")
	}
}

func TestReplicaDeferred(t *testing.T) {
	var r Replica
	r.Accept(key, false)
	if r.UncleanStop() {
		t.Error("without the mark an unclean stop changes nothing")
	}
	if !r.MarkDeferred() || r.MarkDeferred() {
		t.Error("the mark is written once")
	}
	if !r.UncleanStop() || r.Limbo || !r.Fenced || r.CheckForce(0) != RefusedLimbo {
		t.Errorf("after an unclean stop: %+v", r)
	}
	if r.Read(false) != NoEntry {
		t.Error("force promised nothing about those entries: no limbo")
	}
	var c Replica
	c.MarkDeferred()
	if !c.ClearDeferred() || c.UncleanStop() || c.CheckForce(0) != Accepted {
		t.Errorf("after a clean sync: %+v", c)
	}
	if c.CheckForce(1) != RefusedLimbo {
		t.Error("a bookie that lost something vouches for verified ledgers only")
	}
}

func TestReplicaExplicitLACNeverGoesBack(t *testing.T) {
	var r Replica
	for _, s := range []struct {
		lac     int64
		changed bool
		want    EntryID
	}{{5, true, 5}, {3, false, 5}, {5, false, 5}, {9, true, 9}} {
		if v, changed := r.SetExplicitLAC(key, lacBody(s.lac)); v != Accepted || changed != s.changed || r.LAC() != s.want {
			t.Errorf("LAC %d: %v changed=%v, now %d; want changed=%v, %d", s.lac, v, changed, r.LAC(), s.changed, s.want)
		}
	}
	r.Fence(key)
	if v, _ := r.SetExplicitLAC(key, lacBody(10)); v != Accepted {
		t.Errorf("a fenced ledger takes an explicit LAC: %v", v)
	}
	if v, _ := r.SetExplicitLAC(other, lacBody(11)); v != BadKey {
		t.Errorf("wrong key: %v", v)
	}
}

func lacBody(lac int64) []byte {
	b := binary.BigEndian.AppendUint64(nil, 1)
	return append(binary.BigEndian.AppendUint64(b, uint64(lac)), 1, 2, 3, 4)
}
