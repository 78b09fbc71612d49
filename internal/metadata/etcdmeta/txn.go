package etcdmeta

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/binderylog/bindery/internal/metadata"
)

// Txn implements metadata.Store.
func (s *Store) Txn(ctx context.Context, t metadata.Txn) (metadata.TxnResult, error) {
	if err := metadata.CheckLimits(t); err != nil {
		return metadata.TxnResult{}, err
	}
	p, err := plan(t)
	if err != nil {
		return metadata.TxnResult{}, err
	}
	var resp *clientv3.TxnResponse
	err = s.write(ctx, func(ctx context.Context) (err error) {
		resp, err = s.client.Txn(ctx).If(p.cmps...).Then(p.then...).Else(p.otherwise...).Commit()
		return err
	})
	if errors.Is(err, metadata.ErrSessionLost) {
		// etcd knows it before the keep-alive does; the next Session call makes a new one.
		for _, put := range t.Puts {
			if put.Session != nil {
				own := put.Session.(*session)
				own.end()
				<-own.done
			}
		}
	}
	if err != nil {
		return metadata.TxnResult{}, err
	}
	if !resp.Succeeded {
		return metadata.TxnResult{}, p.conflict(resp)
	}
	var r metadata.TxnResult
	for range t.Puts {
		r.Versions = append(r.Versions, metadata.Version(resp.Header.Revision))
	}
	return r, nil
}

// planned is a transaction in etcd's terms. The else branch reads every key that has a condition, to name the one that
// failed.
type planned struct {
	cmps      []clientv3.Cmp
	then      []clientv3.Op
	otherwise []clientv3.Op
	want      []condition // of each read in otherwise
}

type condition struct {
	key     string
	version metadata.Version
}

func plan(t metadata.Txn) (*planned, error) {
	p := &planned{}
	for _, c := range t.Checks {
		p.require(c.Key, c.Version)
	}
	for _, put := range t.Puts {
		p.require(put.Key, put.Version)
		var opts []clientv3.OpOption
		if put.Session != nil {
			lease, err := leaseOf(put.Session)
			if err != nil {
				return nil, err
			}
			opts = append(opts, clientv3.WithLease(lease))
		}
		p.then = append(p.then, clientv3.OpPut(put.Key, string(put.Value), opts...))
	}
	for _, d := range t.Deletes {
		p.require(d.Key, d.Version)
		p.then = append(p.then, clientv3.OpDelete(d.Key))
	}
	return p, nil
}

func (p *planned) require(key string, v metadata.Version) {
	switch v {
	case metadata.Any:
		return
	case metadata.Absent:
		p.cmps = append(p.cmps, clientv3.Compare(clientv3.CreateRevision(key), "=", 0))
	default:
		p.cmps = append(p.cmps, clientv3.Compare(clientv3.ModRevision(key), "=", int64(v)))
	}
	p.otherwise = append(p.otherwise, clientv3.OpGet(key, clientv3.WithKeysOnly()))
	p.want = append(p.want, condition{key, v})
}

// conflict finds the first condition that did not hold.
func (p *planned) conflict(resp *clientv3.TxnResponse) error {
	for i, want := range p.want {
		have := metadata.Absent
		if i < len(resp.Responses) {
			if kvs := resp.Responses[i].GetResponseRange().GetKvs(); len(kvs) > 0 {
				have = metadata.Version(kvs[0].ModRevision)
			}
		}
		if have != want.version {
			return &metadata.ConflictError{Key: want.key, Want: want.version, Have: have}
		}
	}
	// Versions below the ones of this program (-1, -2) and etcd's own (above 0) never equal anything.
	return fmt.Errorf("%w: etcd refused the transaction", metadata.ErrVersion)
}

// write runs a write. It is sent again only after failures that prove that etcd did not take it.
func (s *Store) write(ctx context.Context, fn func(context.Context) error) error {
	ctx, cancel, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	for pause := newBackoff(); ; {
		var sent atomic.Bool
		err := fn(context.WithValue(ctx, sentKey{}, &sent))
		switch {
		case err == nil:
			return nil
		case final(err):
			return wrapFinal(err)
		case sent.Load() && !refusedUnseen(err):
			return s.endOfTime(ctx, metadata.ErrUnknownOutcome, err)
		}
		if !pause.wait(ctx) {
			return s.endOfTime(ctx, metadata.ErrUnavailable, err)
		}
	}
}

// Sequence implements metadata.Store. Each draw writes the parent key, as Pulsar's driver does; the number of its writes is
// unique as long as nobody deletes it. A draw whose answer was lost costs a gap and is repeated.
func (s *Store) Sequence(ctx context.Context, path string) (int64, error) {
	i := strings.LastIndexByte(path, '/')
	if i <= 0 {
		return 0, fmt.Errorf("%w: sequence path %q has no parent", metadata.ErrBadTxn, path)
	}
	parent := path[:i]
	var resp *clientv3.TxnResponse
	err := s.read(ctx, func(ctx context.Context) (err error) { // repeatable, like a read
		resp, err = s.client.Txn(ctx).Then(clientv3.OpPut(parent, ""), clientv3.OpGet(parent)).Commit()
		return err
	})
	if err != nil {
		return 0, err
	}
	if len(resp.Responses) != 2 || len(resp.Responses[1].GetResponseRange().GetKvs()) != 1 {
		return 0, fmt.Errorf("sequence %s: etcd answered %d parts", path, len(resp.Responses))
	}
	return resp.Responses[1].GetResponseRange().Kvs[0].Version - 1, nil
}

// NextInSequence implements metadata.Store.
func (s *Store) NextInSequence(ctx context.Context, path string) (int64, error) {
	i := strings.LastIndexByte(path, '/')
	if i <= 0 {
		return 0, fmt.Errorf("%w: sequence path %q has no parent", metadata.ErrBadTxn, path)
	}
	var resp *clientv3.GetResponse
	err := s.read(ctx, func(ctx context.Context) (err error) {
		resp, err = s.client.Get(ctx, path[:i])
		return err
	})
	if err != nil || len(resp.Kvs) == 0 {
		return 0, err
	}
	return resp.Kvs[0].Version, nil
}

func toKV(kv *mvccpb.KeyValue) metadata.KV {
	out := metadata.KV{Key: string(kv.Key), Value: kv.Value, Version: metadata.Version(kv.ModRevision)}
	if kv.Lease != 0 {
		out.Session = leaseName(clientv3.LeaseID(kv.Lease))
	}
	return out
}

// leaseName is the id of the session that a lease is.
func leaseName(id clientv3.LeaseID) string { return strconv.FormatInt(int64(id), 16) }

func leaseOf(s metadata.Session) (clientv3.LeaseID, error) {
	own, ok := s.(*session)
	if !ok {
		return 0, fmt.Errorf("%w: session %s is of another store", metadata.ErrSessionLost, s.ID())
	}
	return own.lease, nil
}
