package metadata

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/binderylog/bindery/internal/corrupt"
	"github.com/binderylog/bindery/internal/ledger"
)

// Bookie is one registered bookie.
type Bookie struct {
	ID       ledger.BookieID
	Info     ServiceInfo
	ReadOnly bool
	Version  Version
	Session  string // the session that holds the registration
	Damaged  error  // the service info could not be decoded; Info is empty
}

// Address returns host and port of the bookie protocol.
func (b *Bookie) Address() (string, error) { return b.Info.Address(b.ID) }

// Kind selects bookies of a listing.
type Kind uint8

// The kinds of bookie.
const (
	Writable Kind = 1
	ReadOnly Kind = 2
	AnyKind  Kind = Writable | ReadOnly
)

// Bookies is the view of the bookies that are up.
type Bookies struct {
	store Store
	root  string
}

// NewBookies returns the view of the registrations under root.
func NewBookies(s Store, root string) *Bookies { return &Bookies{store: s, root: root} }

// Key returns the key of a bookie's registration.
func (b *Bookies) Key(id ledger.BookieID, readOnly bool) string {
	if readOnly {
		return b.root + "/" + nameAvailable + "/" + nameReadOnly + "/" + string(id)
	}
	return b.root + "/" + nameAvailable + "/" + string(id)
}

// parse splits a key below available into bookie id and kind. ok is false for the keys that are no registration.
func (b *Bookies) parse(key string) (id ledger.BookieID, readOnly, ok bool) {
	name, found := strings.CutPrefix(key, b.root+"/"+nameAvailable+"/")
	if !found || name == "" || name == nameReadOnly {
		return "", false, false
	}
	if ro, is := strings.CutPrefix(name, nameReadOnly+"/"); is {
		name, readOnly = ro, true
	}
	return ledger.BookieID(name), readOnly, name != "" && !strings.Contains(name, "/")
}

func (b *Bookies) decode(kv KV) (Bookie, bool) {
	id, ro, ok := b.parse(kv.Key)
	if !ok {
		return Bookie{}, false
	}
	out := Bookie{ID: id, ReadOnly: ro, Version: kv.Version, Session: kv.Session}
	out.Info, out.Damaged = DecodeServiceInfo(kv.Key, kv.Value)
	return out, true
}

// List returns the registered bookies of a kind, sorted by id. A bookie that moves between writable and read-only is in
// both lists for a moment; then only its read-only registration is returned.
func (b *Bookies) List(ctx context.Context, k Kind) ([]Bookie, error) {
	found := map[string]Bookie{}
	prefix := b.root + "/" + nameAvailable + "/"
	for after := ""; ; {
		kvs, err := b.store.List(ctx, prefix, after, pageSize)
		if err != nil {
			return nil, fmt.Errorf("list bookies: %w", err)
		}
		if len(kvs) == 0 {
			return selectBookies(found, k), nil
		}
		for _, kv := range kvs {
			after = kv.Key
			if bk, ok := b.decode(kv); ok {
				found[kv.Key] = bk
			}
		}
	}
}

// selectBookies picks the bookies of a kind from registrations by key.
func selectBookies(found map[string]Bookie, k Kind) []Bookie {
	byID := make(map[ledger.BookieID]Bookie, len(found))
	for _, bk := range found {
		if have, dup := byID[bk.ID]; !dup || bk.ReadOnly && !have.ReadOnly {
			byID[bk.ID] = bk
		}
	}
	out := make([]Bookie, 0, len(byID))
	for _, bk := range byID {
		if bk.ReadOnly && k&ReadOnly != 0 || !bk.ReadOnly && k&Writable != 0 {
			out = append(out, bk)
		}
	}
	slices.SortFunc(out, func(x, y Bookie) int { return strings.Compare(string(x.ID), string(y.ID)) })
	return out
}

// Resolve returns the registration of one bookie, or ErrNotFound.
func (b *Bookies) Resolve(ctx context.Context, id ledger.BookieID) (Bookie, error) {
	for _, ro := range []bool{false, true} {
		kv, err := b.store.Get(ctx, b.Key(id, ro))
		if errors.Is(err, ErrNotFound) {
			continue
		}
		if err != nil {
			return Bookie{}, fmt.Errorf("resolve bookie %s: %w", id, err)
		}
		bk, ok := b.decode(kv)
		if !ok {
			return Bookie{}, fmt.Errorf("resolve bookie %s: %w", id, corrupt.Errorf(kv.Key, 0, "registration", "not a bookie's key"))
		}
		if bk.Damaged != nil {
			return Bookie{}, fmt.Errorf("resolve bookie %s: %w", id, bk.Damaged)
		}
		return bk, nil
	}
	return Bookie{}, fmt.Errorf("resolve bookie %s: %w", id, ErrNotFound)
}

// Watch reports the whole set of registered bookies, writable and read-only, as it is now and after each change; a reader
// that is late gets the latest only. It ends with ctx.
func (b *Bookies) Watch(ctx context.Context) <-chan []Bookie {
	out := make(chan []Bookie, 1)
	events := b.store.Watch(ctx, b.root+"/"+nameAvailable+"/")
	go func() {
		defer close(out)
		found := map[string]Bookie{}
		synced := false
		for ev := range events {
			switch ev.Kind {
			case EventPut:
				if bk, ok := b.decode(ev.KV); ok {
					found[ev.KV.Key] = bk
				}
			case EventDelete:
				delete(found, ev.KV.Key)
			case EventSynced:
				synced = true
			}
			if synced {
				offerLatest(out, selectBookies(found, AnyKind))
			}
		}
	}()
	return out
}

// Follow reports the registrations of one bookie (none, one, or for a moment two) as they are now and after each change,
// latest only. It ends with ctx.
func (b *Bookies) Follow(ctx context.Context, id ledger.BookieID) <-chan []Bookie {
	out := make(chan []Bookie, 1)
	ctx, cancel := context.WithCancel(ctx)
	changes := make(chan metadataChange)
	var wg sync.WaitGroup
	for i, ro := range []bool{false, true} {
		events := b.store.Watch(ctx, b.Key(id, ro))
		wg.Go(func() {
			for ev := range events {
				select {
				case changes <- metadataChange{i, ev}:
				case <-ctx.Done():
				}
			}
		})
	}
	go func() {
		wg.Wait()
		cancel()
		close(changes)
	}()
	go func() {
		defer close(out)
		var have [2]*Bookie
		var synced [2]bool
		for c := range changes {
			switch {
			case c.ev.Kind == EventSynced:
				synced[c.which] = true
			case c.ev.KV.Key != b.Key(id, c.which == 1):
				continue
			case c.ev.Kind == EventPut:
				if bk, ok := b.decode(c.ev.KV); ok {
					have[c.which] = &bk
				}
			case c.ev.Kind == EventDelete:
				have[c.which] = nil
			}
			if !synced[0] || !synced[1] {
				continue
			}
			var set []Bookie
			for _, bk := range have {
				if bk != nil {
					set = append(set, *bk)
				}
			}
			offerLatest(out, set)
		}
	}()
	return out
}

// metadataChange is an event of one of the two keys of a bookie.
type metadataChange struct {
	which int
	ev    Event
}

// Registrations returns both registrations of a bookie as they are now.
func (b *Bookies) Registrations(ctx context.Context, id ledger.BookieID) ([]Bookie, error) {
	var out []Bookie
	for _, ro := range []bool{false, true} {
		kv, err := b.store.Get(ctx, b.Key(id, ro))
		if errors.Is(err, ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read registration of %s: %w", id, err)
		}
		if bk, ok := b.decode(kv); ok {
			out = append(out, bk)
		}
	}
	return out, nil
}
