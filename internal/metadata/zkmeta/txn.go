package zkmeta

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/binderylog/bindery/internal/metadata"
)

const (
	// replansMax bounds how often one attempt plans a transaction anew because others were faster.
	replansMax = 100
	// bumpsMax bounds the extra writes that keep the version of a node rising when it is made anew for another owner.
	bumpsMax = 16
)

// Txn implements metadata.Store.
func (s *Store) Txn(ctx context.Context, t metadata.Txn) (metadata.TxnResult, error) {
	if err := metadata.CheckLimits(t); err != nil {
		return metadata.TxnResult{}, err
	}
	if err := checkPaths(t); err != nil {
		return metadata.TxnResult{}, err
	}
	ctx, cancel, err := s.begin(ctx)
	if err != nil {
		return metadata.TxnResult{}, err
	}
	defer cancel()
	for pause := newBackoff(); ; {
		l, err := s.linkFor(ctx, t)
		if err != nil {
			return metadata.TxnResult{}, err
		}
		a := &attempt{s: s, l: l, t: t, known: map[string]*zk.Stat{}}
		r, err := await(ctx, s, func() (metadata.TxnResult, error) { return a.run(ctx) })
		if err == nil || errors.Is(err, errNothingToDelete) {
			s.prune.after(t.Deletes)
			return r, nil
		}
		if !transient(err) {
			return metadata.TxnResult{}, wrapFinal(err)
		}
		l.noticed(err)
		if !unsent(err) {
			return metadata.TxnResult{}, s.endOfTime(ctx, metadata.ErrUnknownOutcome, err)
		}
		if !pause.wait(ctx) {
			return metadata.TxnResult{}, s.endOfTime(ctx, metadata.ErrUnavailable, err)
		}
	}
}

func checkPaths(t metadata.Txn) error {
	for _, c := range t.Checks {
		if err := checkPath(c.Key); err != nil {
			return err
		}
	}
	for _, p := range t.Puts {
		if err := checkPath(p.Key); err != nil {
			return err
		}
	}
	for _, d := range t.Deletes {
		if err := checkPath(d.Key); err != nil {
			return err
		}
	}
	return nil
}

// linkFor returns the session that a transaction has to be sent in: that of its ephemeral puts, or any.
func (s *Store) linkFor(ctx context.Context, t metadata.Txn) (*link, error) {
	var own *link
	for _, p := range t.Puts {
		if p.Session == nil {
			continue
		}
		l, ok := p.Session.(*link)
		if !ok || l.s != s || own != nil && own != l {
			return nil, fmt.Errorf("%w: session %s is of another store", metadata.ErrSessionLost, p.Session.ID())
		}
		own = l
	}
	if own == nil {
		return s.live(ctx)
	}
	switch err := own.wait(ctx); {
	case errors.Is(err, errEnded):
		return nil, fmt.Errorf("%w: session %s", metadata.ErrSessionLost, own.ID())
	case err != nil:
		return nil, s.endOfTime(ctx, metadata.ErrUnavailable, err)
	}
	return own, nil
}

// attempt carries a transaction to its end on one connection. ZooKeeper's multi knows checks of versions, creates, writes
// and deletes; what else a transaction asks for is planned from what the nodes are like now, and planned again when that has
// changed meanwhile.
type attempt struct {
	s     *Store
	l     *link
	t     metadata.Txn
	known map[string]*zk.Stat // nodes that were looked at; nil: absent
	fresh bool                // a sync has been made for the looks
}

// step is one condition or write, as operations of a multi.
type step struct {
	key     string
	want    metadata.Version
	put     int // index of the put, or -1
	ops     []any
	version metadata.Version // that a put's node has afterwards; -1: the multi tells
}

func (a *attempt) run(ctx context.Context) (metadata.TxnResult, error) {
	var last error
	for try := range replansMax {
		if err := ctx.Err(); err != nil {
			return metadata.TxnResult{}, fmt.Errorf("%w: %w", errNotSent, err)
		}
		steps, err := a.plan(ctx)
		if err != nil {
			return metadata.TxnResult{}, err
		}
		var ops []any
		for _, st := range steps {
			ops = append(ops, st.ops...)
		}
		answers, err := a.send(ctx, ops, try == 0)
		if err == nil {
			return a.result(steps, answers)
		}
		if errors.Is(err, errAlone) {
			continue
		}
		if !refused(err) {
			return metadata.TxnResult{}, err
		}
		if err := a.explain(steps, answers, err); err != nil {
			return metadata.TxnResult{}, err
		}
		last = err
	}
	return metadata.TxnResult{}, fmt.Errorf("%w: others kept changing the keys: %w", errNotSent, last)
}

// send sends the operations, a single one together with those of others if it may.
func (a *attempt) send(ctx context.Context, ops []any, batched bool) ([]zk.MultiResponse, error) {
	if len(ops) == 1 && batched {
		if w := newWrite(ops[0]); w != nil && !ephemeral(ops[0]) {
			return a.l.batch.do(ctx, w)
		}
	}
	return a.l.conn.Multi(ops...)
}

func ephemeral(op any) bool {
	c, ok := op.(*zk.CreateRequest)
	return ok && c.Flags&zk.FlagEphemeral != 0
}

// look returns what a node is like, nil if it does not exist.
func (a *attempt) look(ctx context.Context, key string) (*zk.Stat, error) {
	if stat, ok := a.known[key]; ok {
		return stat, nil
	}
	if !a.fresh {
		if err := a.l.syncs.sync(ctx); err != nil {
			return nil, fmt.Errorf("%w: %w", errNotSent, err)
		}
		a.fresh = true
	}
	return a.probe(key)
}

// probe is look without sync, for nodes that the connected server has just judged.
func (a *attempt) probe(key string) (*zk.Stat, error) {
	exists, stat, err := a.l.conn.Exists(key)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNotSent, err)
	}
	if !exists {
		stat = nil
	}
	a.known[key] = stat
	return stat, nil
}

// plan turns the transaction into steps: conditions first, then deletes from the leaves up, then puts from the root down.
func (a *attempt) plan(ctx context.Context) ([]step, error) {
	var steps []step
	for _, c := range a.t.Checks {
		st := step{key: c.Key, want: c.Version, put: -1}
		if c.Version == metadata.Absent {
			st.ops = a.absent(c.Key)
		} else {
			st.ops = []any{&zk.CheckVersionRequest{Path: c.Key, Version: int32(c.Version)}}
		}
		steps = append(steps, st)
	}
	deletes := slices.Clone(a.t.Deletes)
	slices.SortStableFunc(deletes, func(x, y metadata.Delete) int {
		return cmp.Compare(strings.Count(y.Key, "/"), strings.Count(x.Key, "/"))
	})
	for _, d := range deletes {
		st := step{key: d.Key, want: d.Version, put: -1}
		if stat, looked := a.known[d.Key]; d.Version == metadata.Any && looked && stat == nil {
			st.ops = a.absent(d.Key)
		} else {
			st.ops = []any{&zk.DeleteRequest{Path: d.Key, Version: wanted(d.Version)}}
		}
		steps = append(steps, st)
	}
	order := make([]int, len(a.t.Puts))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(x, y int) int { return strings.Compare(a.t.Puts[x].Key, a.t.Puts[y].Key) })
	for _, i := range order {
		st, err := a.put(ctx, i)
		if err != nil {
			return nil, err
		}
		steps = append(steps, st)
	}
	return steps, nil
}

// wanted is the version that ZooKeeper is to compare, -1 for none.
func wanted(v metadata.Version) int32 {
	if v == metadata.Any {
		return -1
	}
	return int32(v)
}

// absent is the condition that a node does not exist: making it succeeds and is undone at once.
func (a *attempt) absent(key string) []any {
	return []any{a.create(key, nil, nil), &zk.DeleteRequest{Path: key, Version: -1}}
}

func (a *attempt) create(key string, value []byte, s metadata.Session) *zk.CreateRequest {
	flags := int32(zk.FlagPersistent)
	if s != nil {
		flags = zk.FlagEphemeral
	}
	return &zk.CreateRequest{Path: key, Data: notNil(value), Acl: a.s.acl, Flags: flags}
}

// notNil makes an empty value of none: Java writes empty arrays, and its readers take a null for damage.
func notNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

func (a *attempt) put(ctx context.Context, i int) (step, error) {
	p := a.t.Puts[i]
	st := step{key: p.Key, want: p.Version, put: i, version: -1}
	if p.Version == metadata.Absent {
		st.ops, st.version = []any{a.create(p.Key, p.Value, p.Session)}, 0
		return st, nil
	}
	if p.Version != metadata.Any && p.Session == nil {
		st.ops = []any{&zk.SetDataRequest{Path: p.Key, Data: notNil(p.Value), Version: int32(p.Version)}}
		return st, nil
	}
	stat, err := a.look(ctx, p.Key)
	if err != nil {
		return st, err
	}
	owner := int64(0)
	if p.Session != nil {
		owner = a.l.conn.SessionID()
	}
	switch {
	case stat == nil && p.Version != metadata.Any:
		return st, &metadata.ConflictError{Key: p.Key, Want: p.Version, Have: metadata.Absent}
	case stat == nil:
		st.ops, st.version = []any{a.create(p.Key, p.Value, p.Session)}, 0
	case p.Version != metadata.Any && metadata.Version(stat.Version) != p.Version:
		return st, &metadata.ConflictError{Key: p.Key, Want: p.Version, Have: metadata.Version(stat.Version)}
	case stat.EphemeralOwner == owner:
		st.ops = []any{&zk.SetDataRequest{Path: p.Key, Data: notNil(p.Value), Version: wanted(p.Version)}}
	default:
		st.ops, st.version = a.move(p, stat.Version)
	}
	return st, nil
}

// move replaces a node that belongs to another session, or to none: ZooKeeper fixes a node's owner when it is made. The new
// node's version begins at 0 and is written up until it is above the old one's, so that nobody takes it for the old one.
func (a *attempt) move(p metadata.Put, old int32) ([]any, metadata.Version) {
	writes := 1
	if old < bumpsMax {
		writes = int(old) + 1
	}
	ops := []any{&zk.DeleteRequest{Path: p.Key, Version: old}, a.create(p.Key, nil, p.Session)}
	for n := range writes {
		var value []byte
		if n == writes-1 {
			value = p.Value
		}
		ops = append(ops, &zk.SetDataRequest{Path: p.Key, Data: notNil(value), Version: -1})
	}
	return ops, metadata.Version(writes)
}

// result collects the new versions.
func (a *attempt) result(steps []step, answers []zk.MultiResponse) (metadata.TxnResult, error) {
	r := metadata.TxnResult{Versions: make([]metadata.Version, len(a.t.Puts))}
	next := 0
	for _, st := range steps {
		first := next
		next += len(st.ops)
		if st.put < 0 {
			continue
		}
		if st.version >= 0 {
			r.Versions[st.put] = st.version
			continue
		}
		if first >= len(answers) || answers[first].Stat == nil {
			return r, fmt.Errorf("zookeeper answered %d parts of a transaction of %d", len(answers), next)
		}
		stat := answers[first].Stat
		r.Versions[st.put] = metadata.Version(stat.Version)
		if stat.EphemeralOwner != 0 && a.t.Puts[st.put].Session == nil {
			v, err := a.persist(a.t.Puts[st.put], stat.Version)
			if err != nil {
				return r, err
			}
			r.Versions[st.put] = v
		}
	}
	return r, nil
}

// persist makes a node permanent that turned out to be ephemeral when it was written under a version. Somebody who changes
// it in between has the last word.
func (a *attempt) persist(p metadata.Put, version int32) (metadata.Version, error) {
	ops, v := a.move(p, version)
	_, err := a.l.conn.Multi(ops...)
	if refused(err) {
		return metadata.Version(version), nil
	}
	return v, err
}

// explain finds out why a transaction was refused. nil means that it is to be planned again.
func (a *attempt) explain(steps []step, answers []zk.MultiResponse, refusal error) error {
	st, op, why := failed(steps, answers)
	if st == nil {
		return refusal
	}
	_, creates := op.(*zk.CreateRequest)
	switch {
	case creates && errors.Is(why, zk.ErrNoNode):
		return a.parents(steps, st.key)
	case errors.Is(why, zk.ErrNotEmpty):
		return fmt.Errorf("%s: %w", st.key, why)
	case !errors.Is(why, zk.ErrNoNode) && !errors.Is(why, zk.ErrNodeExists) && !errors.Is(why, zk.ErrBadVersion):
		return fmt.Errorf("%s: %w", st.key, why)
	}
	stat, err := a.probe(st.key)
	if err != nil || st.want == metadata.Any {
		if st.put < 0 && stat == nil && len(steps) == 1 { // one delete of what is not there
			return errNothingToDelete
		}
		return err
	}
	have := metadata.Absent
	if stat != nil {
		have = metadata.Version(stat.Version)
	}
	if have == st.want {
		return nil // it has changed back
	}
	return &metadata.ConflictError{Key: st.key, Want: st.want, Have: have}
}

// errNothingToDelete ends a delete without condition of a node that does not exist.
var errNothingToDelete = errors.New("nothing to delete")

// failed returns the step and the operation that a multi failed at.
func failed(steps []step, answers []zk.MultiResponse) (*step, any, error) {
	next := 0
	for i := range steps {
		for _, op := range steps[i].ops {
			if next < len(answers) && answers[next].Error != nil {
				return &steps[i], op, answers[next].Error
			}
			next++
		}
	}
	return nil, nil, nil
}

// parents makes the parents of a node that the transaction itself does not make.
func (a *attempt) parents(steps []step, key string) error {
	made := map[string]bool{}
	for _, st := range steps {
		if st.put >= 0 {
			made[st.key] = true
		}
	}
	for dir := parentOf(key); dir != ""; dir = parentOf(dir) {
		if !made[dir] {
			return a.l.makeDir(dir, a.s.acl)
		}
	}
	return nil
}

// makeDir makes a node without a value and its parents, unless they exist.
func (l *link) makeDir(path string, acl []zk.ACL) error {
	for range replansMax {
		_, err := l.conn.Create(path, []byte{}, zk.FlagPersistent, acl)
		switch {
		case err == nil, errors.Is(err, zk.ErrNodeExists):
			return nil
		case errors.Is(err, zk.ErrNoNode) && parentOf(path) != "":
			if err := l.makeDir(parentOf(path), acl); err != nil {
				return err
			}
		case refused(err):
			return fmt.Errorf("make %s: %w", path, err)
		default:
			return fmt.Errorf("%w: %w", errNotSent, err)
		}
	}
	return fmt.Errorf("%w: the parents of %s keep going", errNotSent, path)
}
