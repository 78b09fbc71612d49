package metadata

import (
	"context"
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

// scan yields the records of ids above after, ids ascending. In byte order three-level and five-level paths are mixed
// ("00/..." sorts before "000/...", which sorts before "01/..."), while the ids of three-level paths are all smaller. So it
// goes over the tree twice: for the three-level paths, jumping over the others, and the other way round. What is neither is
// looked at by one of the two, and ends the scan with an error.
func (l *Ledgers) scan(ctx context.Context, after ledger.ID, page int, values bool) iter.Seq2[scanned, error] {
	if page < 1 || page > pageSize {
		page = pageSize
	}
	return func(yield func(scanned, error) bool) {
		p := scanPass{l: l, after: after, page: page, values: values}
		if l.scheme == SchemeHybrid && after < shortIDEnd-1 && !p.run(ctx, yield) {
			return
		}
		p.long = true
		p.run(ctx, yield)
	}
}

// scanPass is one walk over the tree.
//
// etcd counts every key of the range that a page is read from, so a page costs as many steps as the range has keys, whatever
// its limit. Pages are therefore read from a narrow scope around the cursor, and from wider and wider ones when that has no
// more.
type scanPass struct {
	l      *Ledgers
	after  ledger.ID
	page   int
	values bool
	long   bool // looks for five-level paths

	cursor string // last key seen
	scope  string // prefix that pages are read from
	widen  int    // digits that the scope loses when it turns out empty
}

// run walks the tree. It returns false when the scan is over: the consumer stopped or an error was yielded.
func (p *scanPass) run(ctx context.Context, yield func(scanned, error) bool) bool {
	top := p.l.root + "/"
	p.cursor, p.scope, p.widen = "", top, 1
	limit := 1 // most likely the first key is only there to be jumped over
	if p.after >= 0 && p.l.isLong(p.after) == p.long {
		p.cursor, limit = p.l.Key(p.after), p.page
		p.scope = p.cursor[:len(p.cursor)-4] // the rest of the same leaf directory
	} else if !p.long || p.l.scheme == SchemeLong {
		limit = p.page
	}
	for {
		kvs, err := p.read(ctx, limit)
		if err != nil {
			yield(scanned{}, err)
			return false
		}
		if len(kvs) == 0 {
			if p.scope == top {
				return true
			}
			p.scope = longer(top, shorten(p.scope, p.widen))
			p.widen *= 2
			continue
		}
		limit, p.widen = p.page, 1
		if len(kvs) > 1 {
			p.scope = longer(top, shorten(commonPrefix(kvs[0].Key, kvs[len(kvs)-1].Key), 1))
		}
		for _, kv := range kvs {
			p.cursor = kv.Key
			rel := kv.Key[len(top):]
			if rel > ":" { // behind the digits: LAYOUT, available, ...
				return true
			}
			if jump := p.jump(rel); jump != "" {
				p.cursor, p.scope, limit = top+jump, top, 1
				break
			}
			if rel < "0" {
				continue // no ledger, and no name that could be taken for one
			}
			id, parent, err := p.l.scheme.ParseLedgerPath(rel)
			if err != nil {
				yield(scanned{}, corrupt.New(kv.Key, 0, "ledger path", err))
				return false
			}
			if parent || id <= p.after {
				continue
			}
			if !yield(scanned{id: id, kv: kv}, nil) {
				return false
			}
		}
	}
}

// jump returns where to go on if rel belongs to a subtree that the other pass looks at, relative to the root: behind the
// last key of that subtree. Otherwise it returns "".
func (p *scanPass) jump(rel string) string {
	switch {
	case p.l.scheme == SchemeLong:
		return ""
	case p.long && len(rel) > 2 && rel[2] == '/' && allDigits(rel[:2]) && rel[:2] <= "21":
		return rel[:2] + "/\xff" // three-level paths "dd/..."; "dd0/..." comes next
	case !p.long && len(rel) > 3 && rel[3] == '/' && allDigits(rel[:3]):
		return rel[:2] + "\xff" // five-level paths that start with these two digits; the next "dd/..." comes behind them
	}
	return ""
}

// read reads one page, with values if they are wanted.
func (p *scanPass) read(ctx context.Context, limit int) ([]KV, error) {
	if p.values {
		return p.l.store.List(ctx, p.scope, p.cursor, limit)
	}
	keys, err := p.l.store.Keys(ctx, p.scope, p.cursor, limit)
	if err != nil {
		return nil, err
	}
	kvs := make([]KV, len(keys))
	for i, k := range keys {
		kvs[i].Key = k
	}
	return kvs, nil
}

// isLong reports whether the record of id has a five-level path.
func (l *Ledgers) isLong(id ledger.ID) bool { return l.scheme == SchemeLong || id >= shortIDEnd }

// shorten takes digits off the end of a prefix, and what stands between and before them.
func shorten(prefix string, digits int) string {
	for ; digits > 0 && prefix != ""; digits-- {
		prefix = strings.TrimRight(prefix, "/L")
		prefix = prefix[:max(0, len(prefix)-1)]
	}
	return prefix
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
