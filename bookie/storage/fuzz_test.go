package storage

import (
	"bytes"
	"io"
	"log/slog"
	"testing"

	"github.com/binderylog/bindery/entrylog"
	"github.com/binderylog/bindery/internal/ledger"
)

// fuzzStates are states of every shape.
func fuzzStates() []state {
	return []state{
		{},
		{replica: ledger.Replica{Key: testKey, HasKey: true, Generation: 7}, seq: 3},
		{replica: ledger.Replica{Key: []byte{}, HasKey: true, Fenced: true, Limbo: true, LossEpoch: 1 << 40}, seq: 1<<64 - 1},
		{replica: ledger.Replica{Tombstone: true, Generation: 1<<32 - 1}, seq: 9, birth: 2, floor: 77, born: []bornMark{{1, 2}, {1<<32 - 1, 1<<64 - 1}}},
		{replica: ledger.Replica{HasKey: true, Key: testKey, Deferred: true, ForceLost: true, ExplicitLAC: bytes.Repeat([]byte{7}, 52)}, run: 12},
	}
}

func FuzzParseState(f *testing.F) {
	for _, st := range fuzzStates() {
		f.Add(int64(5), appendState(nil, 5, &st))
	}
	f.Fuzz(func(t *testing.T, id int64, b []byte) {
		st, err := parseState(id, b)
		if err != nil {
			return
		}
		again := appendState(nil, id, &st)
		back, err := parseState(id, again)
		if err != nil {
			t.Fatalf("%x decodes to %+v, whose encoding %x does not: %v", b, st, again, err)
		}
		if !bytes.Equal(appendState(nil, id, &back), again) {
			t.Fatalf("%+v changes to %+v", st, back)
		}
	})
}

func FuzzDecodeMark(f *testing.F) {
	f.Add(encodeMark(&markTable{seq: 1, run: 1, rows: []dirMark{{id: 3}}}))
	f.Add(encodeMark(&markTable{
		seq: 1 << 60, run: 9, lastUnclean: 8, births: 4, clean: true, lost: true, journals: []string{"a", "journal-2"},
		rows: []dirMark{{id: 1, pos: []uint64{1, 2}, durable: entrylog.Position{Log: 3, Offset: 4096}}, {id: 2, failed: true, pos: []uint64{1<<64 - 1, 0}}},
	}))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decodeMark(b)
		if err != nil {
			return
		}
		again := encodeMark(m)
		if len(again) > markSlot {
			return // more rows than a slot holds were never written
		}
		back, err := decodeMark(again)
		if err != nil || !bytes.Equal(encodeMark(back), again) {
			t.Fatalf("%x decodes to %+v, and then to %+v: %v", b, m, back, err)
		}
	})
}

func FuzzDecodeTombstones(f *testing.F) {
	f.Add(encodeTombstones(&idSet{}, 0))
	f.Add(encodeTombstones((&idSet{}).add([]int64{0, 1, 2, 5, 1<<63 - 1}), 3))
	many := make([]int64, 3000)
	for i := range many {
		many[i] = int64(i) * 3
	}
	f.Add(encodeTombstones((&idSet{}).add(many), 3))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, births, _, err := decodeTombstones(b)
		if err != nil {
			return
		}
		last, runs := int64(-1), 0
		for r := range s.all() {
			if r.first <= last || r.last < r.first {
				t.Fatalf("run %+v follows id %d", r, last)
			}
			if !s.contains(r.first) || !s.contains(r.last) || r.first > 0 && r.first-1 > last && s.contains(r.first-1) {
				t.Fatalf("run %+v is not what contains says", r)
			}
			last = r.last
			runs++
		}
		if runs != s.runs {
			t.Fatalf("%d runs, said to be %d", runs, s.runs)
		}
		if again := encodeTombstones(s, births); !bytes.Equal(again, b) {
			t.Logf("another spelling: %x", b) // longer varints
		}
	})
}

func FuzzDecodeDamaged(f *testing.F) {
	f.Add(encodeDamaged(nil, 0))
	f.Add(encodeDamaged([]Damaged{{1, 2}, {1<<63 - 1, 0}}, 99))
	f.Fuzz(func(t *testing.T, b []byte) {
		list, dropped, err := decodeDamaged(b)
		if err == nil && !bytes.Equal(encodeDamaged(list, dropped), b) {
			t.Fatalf("%x decodes to %v, %d", b, list, dropped)
		}
	})
}

func FuzzDecodeIntent(f *testing.F) {
	f.Add(encodeDeleteIntent([]int64{5, 1, 1<<63 - 1}))
	f.Add(encodeCompactIntent(7, []entrylog.LogID{1, 2, 1<<32 - 1}))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := decodeIntent(b)
		if err != nil {
			return
		}
		switch r.kind {
		case intentDelete:
			for i, id := range r.ledgers {
				if id < 0 || i > 0 && id < r.ledgers[i-1] {
					t.Fatalf("ids %v", r.ledgers)
				}
			}
		case intentCompact:
			if len(r.sources) > compactSourcesMax {
				t.Fatalf("%d sources", len(r.sources))
			}
		}
	})
}

// FuzzReplay feeds a storage with records of any kind and content: it takes them or says what is wrong with them, and
// stays usable.
func FuzzReplay(f *testing.F) {
	f.Add(uint8(1), uint64(5), testBody(5, 0, -1, 64, 0))
	f.Add(uint8(1), uint64(6), testBody(5, 0, -1, 64, 0))
	f.Add(uint8(1), uint64(1<<63), testBody(-1<<63, 0, -1, 64, 0))
	for _, st := range fuzzStates() {
		f.Add(uint8(2), uint64(5), appendState(nil, 5, &st))
	}
	f.Add(uint8(0), uint64(0), []byte{})
	f.Add(uint8(200), uint64(1), []byte("x"))
	e := newEnv(f, 1, 1, func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(io.Discard, nil)) })
	s, err := Open(e.fs, e.options())
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = s.Close() })
	pos := uint64(0)
	f.Fuzz(func(t *testing.T, kind uint8, tag uint64, payload []byte) {
		pos++
		_ = s.Replay(Record{Position: pos, Kind: kind, Tag: tag, Payload: payload})
		body := testBody(1, 0, -1, 64, 0)
		if err := s.Replay(Record{Position: pos, Kind: KindEntry, Tag: 1, Payload: body}); err != nil && tag != 1 {
			t.Fatal(err)
		}
	})
}
