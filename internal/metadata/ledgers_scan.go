package metadata

import (
	"context"
	"fmt"
	"iter"
	"strings"

	"github.com/binderylog/bindery/internal/corrupt"
	"github.com/binderylog/bindery/internal/ledger"
)

// scanned is one record found by a scan. The value is there only if it was asked for.
type scanned struct {
	id ledger.ID
	kv KV
}

// ids yields the ids above after, ascending.
func (l *Ledgers) ids(ctx context.Context, after ledger.ID, page int) iter.Seq2[ledger.ID, error] {
	return func(yield func(ledger.ID, error) bool) {
		for e, err := range l.scan(ctx, after, page, false) {
			if !yield(e.id, err) || err != nil {
				return
			}
		}
	}
}

// scan yields the records of ids above after, ids ascending. In byte order the three-level and the five-level paths are
// mixed ("00/..." sorts before "000/...", which sorts before "01/..."), while ids of three-level paths are all smaller. So
// the first pass reads the three-level subtrees one by one, and the second walks everything that starts with a digit and
// jumps over three-level subtrees.
func (l *Ledgers) scan(ctx context.Context, after ledger.ID, page int, values bool) iter.Seq2[scanned, error] {
	if page < 1 || page > pageSize {
		page = pageSize
	}
	return func(yield func(scanned, error) bool) {
		if l.scheme == SchemeHybrid && after < shortIDEnd-1 {
			first := 0
			if after >= 0 {
				first = int(after / 1e8)
			}
			for d := first; d <= int((shortIDEnd-1)/1e8); d++ {
				prefix := fmt.Sprintf("%s/%02d/", l.root, d)
				if !l.walk(ctx, prefix, after, page, values, false, yield) {
					return
				}
			}
		}
		first := 0
		if after >= 0 && l.isLong(after) {
			first = int(l.scheme.LedgerPath(after)[0] - '0')
		}
		for d := first; d <= 9; d++ {
			if !l.walk(ctx, fmt.Sprintf("%s/%d", l.root, d), after, page, values, true, yield) {
				return
			}
		}
	}
}

// walk yields the records under prefix. In the long pass over a hybrid tree, keys of three-level subtrees are jumped over.
// It returns false when the scan is over: the consumer stopped or an error was yielded.
//
// etcd counts every key of the range that a page is read from, so a page of a million keys costs a million steps whatever
// its limit. Pages are therefore read from the narrowest scope that promises a full one, and from a wider one, a character
// less, when that has no more.
func (l *Ledgers) walk(ctx context.Context, prefix string, after ledger.ID, page int, values, long bool, yield func(scanned, error) bool) bool {
	cursor, scope := "", prefix
	if after >= 0 && l.isLong(after) == long && strings.HasPrefix(l.Key(after), prefix) {
		cursor = l.Key(after)
		scope = longer(prefix, cursor[:len(cursor)-4]) // the rest of the same leaf directory
	}
	jumps := long && l.scheme == SchemeHybrid
	limit := page
	if jumps && cursor == "" {
		limit = 1 // most likely the first key is only there to be jumped over
	}
	for {
		kvs, err := l.page(ctx, scope, cursor, limit, values)
		if err != nil {
			yield(scanned{}, err)
			return false
		}
		if len(kvs) == 0 {
			if scope == prefix {
				return true
			}
			scope = scope[:len(scope)-1]
			continue
		}
		if first, last := kvs[0].Key, kvs[len(kvs)-1].Key; len(kvs) > 1 {
			scope = longer(prefix, commonPrefix(first, last))
			scope = longer(prefix, scope[:len(scope)-1])
		}
		limit = page
		for _, kv := range kvs {
			cursor = kv.Key
			rel := kv.Key[len(l.root)+1:]
			if jumps && len(rel) > 2 && rel[2] == '/' && allDigits(rel[:2]) && rel[:2] <= "21" {
				// The first pass has this subtree. Its keys end before this cursor.
				cursor, scope, limit = l.root+"/"+rel[:2]+"/\xff", prefix, 1
				break
			}
			id, parent, err := l.scheme.ParseLedgerPath(rel)
			if err != nil {
				yield(scanned{}, corrupt.New(kv.Key, 0, "ledger path", err))
				return false
			}
			if parent || id <= after {
				continue
			}
			if !yield(scanned{id: id, kv: kv}, nil) {
				return false
			}
		}
	}
}

// longer returns the longer of two strings of which one starts the other.
func longer(a, b string) string {
	if len(a) > len(b) {
		return a
	}
	return b
}

func commonPrefix(a, b string) string {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return a[:n]
}

// isLong reports whether the record of id has a five-level path.
func (l *Ledgers) isLong(id ledger.ID) bool { return l.scheme == SchemeLong || id >= shortIDEnd }

// page reads one page of keys, with values if they are wanted.
func (l *Ledgers) page(ctx context.Context, prefix, cursor string, page int, values bool) ([]KV, error) {
	if values {
		return l.store.List(ctx, prefix, cursor, page)
	}
	keys, err := l.store.Keys(ctx, prefix, cursor, page)
	if err != nil {
		return nil, err
	}
	kvs := make([]KV, len(keys))
	for i, k := range keys {
		kvs[i].Key = k
	}
	return kvs, nil
}
