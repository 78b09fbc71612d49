package metadata

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"strconv"
	"strings"

	"github.com/binderylog/bindery/internal/corrupt"
	"github.com/binderylog/bindery/internal/ledger"
)

// incarnationFormat is the version of the incarnation record. A reader refuses a higher one.
const incarnationFormat = 1

// directoriesMax bounds the directories of one bookie.
const directoriesMax = 1024

// ErrFormatTooNew is returned for a record that a newer version of this program wrote.
var ErrFormatTooNew = errors.New("written by a newer version of bindery")

// Incarnation is what the store knows about the directories of one bookie id. It is never deleted, so that a bookie that
// is created again under an old id knows that it is not the first.
type Incarnation struct {
	Number   uint64 // how often a bookie has been created under this id, from 1
	ID       string // random, drawn with each creation
	Instance string // instance id of the cluster
	EverLost bool   // some data of this incarnation may have been lost once: adds to unverified ledgers are checked for ever
	Loss     string // why data may have been lost, until every ledger concerned is in limbo; "" when there is nothing pending
	Start    string // random, drawn by the process that raised the epoch last: tells its own lost answer from a rival
	// Directories holds every directory by its id. One that is here but not on disk has been lost.
	Directories map[string]Directory
}

// Directory is one directory of a bookie.
type Directory struct {
	Incarnation uint64 `json:"incarnation"` // number of the incarnation that stamped it
	Epoch       uint64 `json:"epoch"`       // raised at every start and clean stop
	Path        string `json:"path"`        // as configured, for people
	Kinds       string `json:"kinds"`       // such as "ledger,index"
}

// incarnationJSON is the stored form.
type incarnationJSON struct {
	Format      int                  `json:"format"`
	Incarnation uint64               `json:"incarnation"`
	ID          string               `json:"id"`
	Instance    string               `json:"instance"`
	EverLost    bool                 `json:"ever_lost"`
	Loss        string               `json:"loss,omitempty"`
	Start       string               `json:"start"`
	Directories map[string]Directory `json:"directories"`
}

// EncodeIncarnation returns the stored form: indented JSON with sorted keys.
func EncodeIncarnation(r *Incarnation) ([]byte, error) {
	b, err := json.MarshalIndent(incarnationJSON{
		Format: incarnationFormat, Incarnation: r.Number, ID: r.ID, Instance: r.Instance,
		EverLost: r.EverLost, Loss: r.Loss, Start: r.Start, Directories: r.Directories,
	}, "", " ")
	if err != nil {
		return nil, fmt.Errorf("encode incarnation: %w", err)
	}
	return b, nil
}

// DecodeIncarnation reads the stored form. Damage is a *corrupt.Error, a higher format ErrFormatTooNew.
func DecodeIncarnation(key string, b []byte) (*Incarnation, error) {
	var j incarnationJSON
	if err := json.Unmarshal(b, &j); err != nil {
		return nil, corrupt.New(key, 0, "incarnation record", err)
	}
	if j.Format > incarnationFormat {
		return nil, fmt.Errorf("%s: format %d (this version reads %d): %w", key, j.Format, incarnationFormat, ErrFormatTooNew)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields() // within one format version there are none
	if err := d.Decode(&j); err != nil {
		return nil, corrupt.New(key, 0, "incarnation record", err)
	}
	switch {
	case j.Format < 1 || j.Incarnation < 1 || j.ID == "" || len(j.Directories) > directoriesMax:
		return nil, corrupt.Errorf(key, 0, "incarnation record", "format %d, incarnation %d, id %q, %d directories",
			j.Format, j.Incarnation, j.ID, len(j.Directories))
	}
	for id, dir := range j.Directories {
		if id == "" || dir.Incarnation < 1 || dir.Incarnation > j.Incarnation || dir.Epoch > math.MaxInt64 {
			return nil, corrupt.Errorf(key, 0, "incarnation record", "directory %q of incarnation %d at epoch %d", id, dir.Incarnation, dir.Epoch)
		}
	}
	return &Incarnation{
		Number: j.Incarnation, ID: j.ID, Instance: j.Instance, EverLost: j.EverLost, Loss: j.Loss, Start: j.Start,
		Directories: j.Directories,
	}, nil
}

// Incarnations is the view of the incarnation records. They live beside the ledgers root, where Java does not look.
type Incarnations struct {
	store Store
	root  string
}

// NewIncarnations returns the view for the cluster under root.
func NewIncarnations(s Store, root string) *Incarnations {
	return &Incarnations{store: s, root: "/bindery" + root}
}

// Key returns the key of a bookie's incarnation record.
func (i *Incarnations) Key(id ledger.BookieID) string { return i.root + "/incarnations/" + string(id) }

// GCKey returns the key of a bookie's garbage-collection counter.
func (i *Incarnations) GCKey(id ledger.BookieID) string { return i.root + "/gc/" + string(id) }

// Get returns a bookie's incarnation record, or ErrNotFound.
func (i *Incarnations) Get(ctx context.Context, id ledger.BookieID) (*Incarnation, Version, error) {
	kv, err := i.store.Get(ctx, i.Key(id))
	if err != nil {
		return nil, 0, fmt.Errorf("read incarnation of %s: %w", id, err)
	}
	r, err := DecodeIncarnation(kv.Key, kv.Value)
	if err != nil {
		return nil, 0, fmt.Errorf("read incarnation of %s: %w", id, err)
	}
	return r, kv.Version, nil
}

// Clone returns a deep copy.
func (r *Incarnation) Clone() *Incarnation {
	c := *r
	c.Directories = maps.Clone(r.Directories)
	return &c
}

// Put creates (Absent) or replaces a bookie's incarnation record.
func (i *Incarnations) Put(ctx context.Context, id ledger.BookieID, r *Incarnation, v Version) (Version, error) {
	b, err := EncodeIncarnation(r)
	if err != nil {
		return 0, err
	}
	nv, err := i.store.Put(ctx, i.Key(id), b, v)
	if err != nil {
		return 0, fmt.Errorf("write incarnation of %s: %w", id, err)
	}
	return nv, nil
}

// Check returns the condition "bookie id is still what it is now" for a transaction that newly names the bookie in a
// ledger. It is read before the first entry is sent to that bookie. A bookie without a record (an Apache bookie) yields the
// condition that it still has none.
func (i *Incarnations) Check(ctx context.Context, id ledger.BookieID) (Check, error) {
	kv, err := i.store.Get(ctx, i.Key(id))
	if errors.Is(err, ErrNotFound) {
		return Check{Key: i.Key(id), Version: Absent}, nil
	}
	if err != nil {
		return Check{}, fmt.Errorf("read incarnation of %s: %w", id, err)
	}
	return Check{Key: i.Key(id), Version: kv.Version}, nil
}

// GCCounter returns the number of a bookie's last garbage-collection pass, 0 if there was none.
func (i *Incarnations) GCCounter(ctx context.Context, id ledger.BookieID) (uint64, Version, error) {
	kv, err := i.store.Get(ctx, i.GCKey(id))
	if errors.Is(err, ErrNotFound) {
		return 0, Absent, nil
	}
	if err != nil {
		return 0, 0, fmt.Errorf("read gc counter of %s: %w", id, err)
	}
	n, perr := strconv.ParseUint(strings.TrimSpace(string(kv.Value)), 10, 63)
	if perr != nil {
		return 0, 0, corrupt.New(kv.Key, 0, "gc counter", perr)
	}
	return n, kv.Version, nil
}

// SetGCCounter replaces version v of a bookie's counter.
func (i *Incarnations) SetGCCounter(ctx context.Context, id ledger.BookieID, n uint64, v Version) (Version, error) {
	nv, err := i.store.Put(ctx, i.GCKey(id), strconv.AppendUint(nil, n, 10), v)
	if err != nil {
		return 0, fmt.Errorf("write gc counter of %s: %w", id, err)
	}
	return nv, nil
}
