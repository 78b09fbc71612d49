package metadata

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/binderylog/bindery/internal/ledger"
)

// Cookies is the view of the bookies' identities. A cookie outlives its bookie's process and is removed only when the
// bookie has been decommissioned.
type Cookies struct {
	store Store
	root  string
}

// NewCookies returns the view of the cookies under root.
func NewCookies(s Store, root string) *Cookies { return &Cookies{store: s, root: root} }

// Key returns the key of a bookie's cookie.
func (c *Cookies) Key(id ledger.BookieID) string {
	return c.root + "/" + nameCookies + "/" + string(id)
}

// Get returns the bytes of a bookie's cookie, or ErrNotFound.
func (c *Cookies) Get(ctx context.Context, id ledger.BookieID) ([]byte, Version, error) {
	kv, err := c.store.Get(ctx, c.Key(id))
	if err != nil {
		return nil, 0, fmt.Errorf("read cookie of %s: %w", id, err)
	}
	return kv.Value, kv.Version, nil
}

// Put writes a bookie's cookie: with Absent it creates it, otherwise it replaces version v.
func (c *Cookies) Put(ctx context.Context, id ledger.BookieID, text []byte, v Version) (Version, error) {
	if err := CheckBookieID(id); err != nil {
		return 0, err
	}
	nv, err := c.store.Put(ctx, c.Key(id), text, v)
	if err != nil {
		return 0, fmt.Errorf("write cookie of %s: %w", id, err)
	}
	return nv, nil
}

// Delete removes version v of a bookie's cookie.
func (c *Cookies) Delete(ctx context.Context, id ledger.BookieID, v Version) error {
	if err := c.store.Delete(ctx, c.Key(id), v); err != nil {
		return fmt.Errorf("delete cookie of %s: %w", id, err)
	}
	return nil
}

// List returns the ids of all bookies that have a cookie, ascending.
func (c *Cookies) List(ctx context.Context) ([]ledger.BookieID, error) {
	prefix := c.root + "/" + nameCookies + "/"
	var out []ledger.BookieID
	for after := ""; ; {
		keys, err := c.store.Keys(ctx, prefix, after, pageSize)
		if err != nil {
			return nil, fmt.Errorf("list cookies: %w", err)
		}
		if len(keys) == 0 {
			return out, nil
		}
		for _, k := range keys {
			after = k
			if name := k[len(prefix):]; name != "" && !strings.Contains(name, "/") {
				out = append(out, ledger.BookieID(name))
			}
		}
	}
}

// isConflict reports whether err says that another client was faster.
func isConflict(err error) bool { return errors.Is(err, ErrVersion) }
