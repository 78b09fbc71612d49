package metadata

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// SequenceVoter is a Store whose auditors are elected by ephemeral sequential nodes, as Java's are on ZooKeeper.
type SequenceVoter interface {
	// Votes reports whether this store's URI asks for that kind of election: zk:// does, metadata-store:zk: does not.
	Votes() bool
	// CreateSequential makes the next key that starts with path, bound to the session, and returns it. One whose creation was
	// not answered is found again by its session.
	CreateSequential(ctx context.Context, path string, value []byte, s Session) (key string, err error)
}

// Elected is a won election. It lasts until Done is closed.
type Elected struct {
	e       *Election
	key     string
	version Version
	done    chan struct{}
	session Session
}

// Done is closed once the candidate must not act any more: its key has gone, or its session ended.
func (w *Elected) Done() <-chan struct{} { return w.done }

// Resign gives the office up.
func (w *Elected) Resign(ctx context.Context) error {
	if err := w.e.store.Delete(ctx, w.key, w.version); err != nil && !errors.Is(err, ErrVersion) && !errors.Is(err, ErrNotFound) {
		return fmt.Errorf("resign as auditor: %w", err)
	}
	return nil
}

// Election elects one auditor among all that stand, by session. On etcd and in memory, and where Pulsar's drivers own the
// ZooKeeper, it is the key underreplication/leader; where Java's own driver does, the lowest of the votes V_nnnnnnnnnn.
type Election struct {
	store Store
	root  string // ROOT/underreplication
}

// NewElection returns the auditors' election of the cluster under root.
func NewElection(s Store, root string) *Election {
	return &Election{store: s, root: root + "/" + nameUnderRep}
}

func (e *Election) leaderKey() string { return e.root + "/leader" }
func (e *Election) votesDir() string  { return e.root + "/auditorelection" }

func (e *Election) voter() (SequenceVoter, bool) {
	v, ok := e.store.(SequenceVoter)
	return v, ok && v.Votes()
}

// Current returns the name of the elected auditor, "" if there is none.
func (e *Election) Current(ctx context.Context) (string, error) {
	if _, ok := e.voter(); !ok {
		kv, err := e.store.Get(ctx, e.leaderKey())
		if errors.Is(err, ErrNotFound) {
			return "", nil
		}
		if err != nil {
			return "", fmt.Errorf("read the elected auditor: %w", err)
		}
		return decodeHolder(kv.Value), nil
	}
	votes, err := e.votes(ctx)
	if err != nil || len(votes) == 0 {
		return "", err
	}
	return decodeHolder(votes[0].Value), nil
}

// Campaign stands as name and returns once elected, or with an error when ctx or the session ends.
func (e *Election) Campaign(ctx context.Context, name string) (*Elected, error) {
	s, err := e.store.Session(ctx)
	if err != nil {
		return nil, fmt.Errorf("stand for auditor: %w", err)
	}
	var kv KV
	if voter, ok := e.voter(); ok {
		kv, err = e.vote(ctx, voter, name, s)
	} else {
		kv, err = e.lead(ctx, name, s)
	}
	if err != nil {
		return nil, fmt.Errorf("stand for auditor: %w", err)
	}
	w := &Elected{e: e, key: kv.Key, version: kv.Version, done: make(chan struct{}), session: s}
	go w.watch(ctx)
	return w, nil
}

// watch closes done when the office is lost.
func (w *Elected) watch(ctx context.Context) {
	defer close(w.done)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events := w.e.store.Watch(ctx, w.key)
	seen := false
	for {
		select {
		case <-w.session.Done():
			return
		case ev, ok := <-events:
			switch {
			case !ok:
				return
			case ev.Kind == EventSynced && !seen:
				return
			case ev.Kind != EventSynced && ev.KV.Key != w.key:
			case ev.Kind == EventPut && ev.KV.Version == w.version:
				seen = true
			case ev.Kind == EventSynced:
			default:
				return
			}
		}
	}
}

// lead creates the leader key, whenever it is free.
func (e *Election) lead(ctx context.Context, name string, s Session) (KV, error) {
	value, err := json.Marshal(name)
	if err != nil {
		return KV{}, err
	}
	for pause := newBackoff(); ; {
		r, err := e.store.Txn(ctx, Txn{Puts: []Put{{Key: e.leaderKey(), Value: value, Version: Absent, Session: s}}})
		if err == nil {
			return KV{Key: e.leaderKey(), Version: r.Versions[0]}, nil
		}
		switch {
		case errors.Is(err, ErrExists), errors.Is(err, ErrUnknownOutcome):
			kv, gerr := e.store.Get(ctx, e.leaderKey())
			if gerr == nil && kv.Session == s.ID() && kv.Session != "" {
				return kv, nil // ours: the answer was lost, or it could not be given up
			}
			if gerr != nil && !errors.Is(gerr, ErrNotFound) {
				break // it may be ours: who waits for that waits for ever
			}
			if err := e.waitGone(ctx, e.leaderKey(), s, true); err != nil {
				return KV{}, err
			}
		case errors.Is(err, ErrSessionLost), ctx.Err() != nil:
			return KV{}, err
		}
		if werr := pause.wait(ctx); werr != nil {
			return KV{}, errors.Join(werr, err)
		}
	}
}

// waitGone waits until a key does not exist, or, with own, belongs to the session: a write of it may have landed late.
func (e *Election) waitGone(ctx context.Context, key string, s Session, own bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events := e.store.Watch(ctx, key)
	there := false
	for {
		select {
		case <-s.Done():
			return ErrSessionLost
		case ev, ok := <-events:
			switch {
			case !ok:
				if err := ctx.Err(); err != nil {
					return err
				}
				return ErrClosed
			case ev.Kind == EventSynced:
				if !there {
					return nil
				}
			case ev.KV.Key != key:
			case ev.Kind == EventDelete, own && ev.KV.Session == s.ID():
				return nil
			default:
				there = true
			}
		}
	}
}

// vote casts a vote, unless this session has one, and waits until it is the lowest.
func (e *Election) vote(ctx context.Context, voter SequenceVoter, name string, s Session) (KV, error) {
	for {
		votes, err := e.votes(ctx)
		if err != nil {
			return KV{}, err
		}
		own := slices.IndexFunc(votes, func(kv KV) bool { return kv.Session == s.ID() && decodeHolder(kv.Value) == name })
		if own < 0 {
			if _, err := voter.CreateSequential(ctx, e.votesDir()+"/V_", encodeHolder(name), s); err != nil {
				return KV{}, err
			}
			continue
		}
		if own == 0 {
			// For people: Java does the same.
			_, _ = e.store.Put(ctx, e.votesDir(), encodeHolder(name), Any)
			return votes[0], nil
		}
		if err := e.waitGone(ctx, votes[own-1].Key, s, false); err != nil {
			return KV{}, err
		}
	}
}

// votes returns the votes, the oldest first.
func (e *Election) votes(ctx context.Context) ([]KV, error) {
	var votes []KV
	prefix := e.votesDir() + "/V_"
	for after := ""; ; {
		kvs, err := e.store.List(ctx, prefix, after, pageSize)
		if err != nil {
			return nil, fmt.Errorf("list votes: %w", err)
		}
		if len(kvs) == 0 {
			break
		}
		votes = append(votes, kvs...)
		after = kvs[len(kvs)-1].Key
	}
	number := func(kv KV) int64 {
		n, _ := strconv.ParseInt(strings.TrimPrefix(kv.Key, prefix), 10, 64)
		return n
	}
	slices.SortFunc(votes, func(a, b KV) int { return int(min(max(number(a)-number(b), -1), 1)) })
	return votes, nil
}
