package etcdmeta

import (
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/binderylog/bindery/internal/metadata"
)

// watchPage is how many keys a watch reads at once when it takes stock.
const watchPage = 500

// watcher follows one prefix for one reader. It takes stock, then follows etcd's history from that revision; when history
// has been compacted away or the stream breaks, it takes stock again and reports the difference. Changes wait in pending,
// one per key, until the reader takes them.
type watcher struct {
	s      *Store
	prefix string
	out    chan metadata.Event

	told    map[string]metadata.Version // what the reader has been told
	state   map[string]metadata.KV      // pending state of keys; Version Absent: deleted
	order   []string                    // keys of state, oldest first
	synced  bool                        // EventSynced has been queued
	pending bool                        // EventSynced has been queued and not taken
}

// Watch implements metadata.Store.
func (s *Store) Watch(ctx context.Context, prefix string) <-chan metadata.Event {
	w := &watcher{
		s: s, prefix: prefix, out: make(chan metadata.Event),
		told: map[string]metadata.Version{}, state: map[string]metadata.KV{},
	}
	ctx, cancel := context.WithCancel(ctx)
	unhook := context.AfterFunc(s.stop, cancel)
	run := func() {
		defer close(w.out)
		defer cancel()
		defer unhook()
		w.run(ctx)
	}
	if !s.task(run) {
		cancel()
		unhook()
		close(w.out)
	}
	return w.out
}

func (w *watcher) run(ctx context.Context) {
	pause := newBackoff()
	for ctx.Err() == nil {
		rev, err := w.takeStock(ctx)
		if err == nil {
			if !w.synced {
				w.synced, w.pending = true, true
			}
			err = w.follow(ctx, rev+1)
		}
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, errFollowed) {
			pause = newBackoff() // it worked for a while
		}
		w.s.o.Logger.Debug("metadata watch restarts", "prefix", w.prefix, "error", err)
		if !pause.wait(ctx) {
			return
		}
	}
}

// errFollowed marks the end of a stream that had delivered something.
var errFollowed = errors.New("watch stream ended")

// takeStock reads everything under the prefix at one revision and queues what differs from what the reader knows.
func (w *watcher) takeStock(ctx context.Context) (rev int64, err error) {
	seen := map[string]struct{}{}
	from, end := w.prefix, clientv3.GetPrefixRangeEnd(w.prefix)
	for {
		opts := []clientv3.OpOption{clientv3.WithRange(end), clientv3.WithLimit(watchPage)}
		if rev > 0 {
			opts = append(opts, clientv3.WithRev(rev))
		}
		var resp *clientv3.GetResponse
		err := w.s.read(ctx, func(ctx context.Context) (err error) {
			resp, err = w.s.client.Get(ctx, from, opts...)
			return err
		})
		if err != nil {
			return 0, err
		}
		if rev == 0 {
			rev = resp.Header.Revision
		}
		for _, kv := range resp.Kvs {
			seen[string(kv.Key)] = struct{}{}
			w.queuePut(kv)
		}
		if !resp.More || len(resp.Kvs) == 0 {
			break
		}
		from = string(resp.Kvs[len(resp.Kvs)-1].Key) + "\x00"
	}
	for key := range w.told {
		if _, still := seen[key]; !still {
			w.queueDelete(key)
		}
	}
	for _, key := range w.order { // queued before and gone since
		if _, still := seen[key]; !still {
			w.queueDelete(key)
		}
	}
	return rev, nil
}

// follow reports changes from a revision on until the stream ends.
func (w *watcher) follow(ctx context.Context, rev int64) error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	stream := w.s.client.Watch(ctx, w.prefix, clientv3.WithPrefix(), clientv3.WithRev(rev), clientv3.WithFragment())
	ended := errors.New("watch stream closed")
	for {
		var out chan metadata.Event
		event, more := w.next()
		if more {
			out = w.out
		}
		select {
		case out <- event:
			w.taken(event)
		case resp, ok := <-stream:
			if !ok {
				return ended
			}
			if err := resp.Err(); err != nil {
				return errors.Join(ended, err)
			}
			for _, e := range resp.Events {
				if e.Type == mvccpb.DELETE {
					w.queueDelete(string(e.Kv.Key))
				} else {
					w.queuePut(e.Kv)
				}
			}
			ended = errFollowed
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (w *watcher) queuePut(kv *mvccpb.KeyValue) {
	key := string(kv.Key)
	if _, queued := w.state[key]; !queued {
		if w.told[key] == metadata.Version(kv.ModRevision) {
			return
		}
		w.order = append(w.order, key)
	}
	w.state[key] = toKV(kv)
}

func (w *watcher) queueDelete(key string) {
	if _, queued := w.state[key]; !queued {
		if _, known := w.told[key]; !known {
			return
		}
		w.order = append(w.order, key)
	}
	w.state[key] = metadata.KV{Key: key, Version: metadata.Absent}
}

// next returns the event that the reader should get next. Keys that came and went unseen are dropped on the way.
func (w *watcher) next() (metadata.Event, bool) {
	for len(w.order) > 0 {
		kv := w.state[w.order[0]]
		if kv.Version != metadata.Absent {
			return metadata.Event{Kind: metadata.EventPut, KV: kv}, true
		}
		if _, known := w.told[kv.Key]; known {
			return metadata.Event{Kind: metadata.EventDelete, KV: metadata.KV{Key: kv.Key}}, true
		}
		w.pop()
	}
	if w.pending {
		return metadata.Event{Kind: metadata.EventSynced}, true
	}
	return metadata.Event{}, false
}

func (w *watcher) pop() {
	delete(w.state, w.order[0])
	w.order = w.order[1:]
}

// taken records that the reader got the event.
func (w *watcher) taken(e metadata.Event) {
	switch e.Kind {
	case metadata.EventSynced:
		w.pending = false
		return
	case metadata.EventPut:
		w.told[e.KV.Key] = e.KV.Version
	case metadata.EventDelete:
		delete(w.told, e.KV.Key)
	}
	w.pop()
}
