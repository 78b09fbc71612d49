package metadata

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/binderylog/bindery/internal/corrupt"
)

// Layout names the Java class that defines where ledger records live, and its version.
type Layout struct {
	Class   string
	Version int
}

const layoutPackage = "org.apache.bookkeeper.meta."

// DefaultLayout is the layout of new clusters.
var DefaultLayout = Layout{Class: layoutPackage + "HierarchicalLedgerManagerFactory", Version: 1}

// layoutSchemes maps the classes to the path schemes of this version.
var layoutSchemes = map[string]Scheme{
	"HierarchicalLedgerManagerFactory":     SchemeHybrid,
	"LongHierarchicalLedgerManagerFactory": SchemeLong,
}

// ErrLayout is returned for a LAYOUT that this version cannot serve.
var ErrLayout = errors.New("ledger layout not supported (HierarchicalLedgerManagerFactory and LongHierarchicalLedgerManagerFactory are)")

// LongLayout is the layout that gives every ledger a path of five levels.
var LongLayout = Layout{Class: layoutPackage + "LongHierarchicalLedgerManagerFactory", Version: 1}

// Scheme returns the path scheme of a layout.
func (l Layout) Scheme() (Scheme, error) {
	name := strings.TrimPrefix(strings.TrimPrefix(l.Class, "dlshade."), layoutPackage)
	s, ok := layoutSchemes[name]
	if !ok {
		return 0, fmt.Errorf("%w: %s", ErrLayout, l.Class)
	}
	if l.Version != 1 {
		return 0, fmt.Errorf("%w: version %d of %s", ErrLayout, l.Version, l.Class)
	}
	return s, nil
}

// EncodeLayout returns the stored form: "2", a line feed, class and version.
func EncodeLayout(l Layout) []byte {
	return []byte("2\n" + l.Class + ":" + strconv.Itoa(l.Version))
}

// DecodeLayout reads the stored form; that of layout format 1 too.
func DecodeLayout(key string, b []byte) (Layout, error) {
	if len(b) > KeyMax {
		return Layout{}, corrupt.Errorf(key, 0, "ledger layout", "%d bytes", len(b))
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	if len(lines) < 2 {
		return Layout{}, corrupt.Errorf(key, 0, "ledger layout", "%d lines instead of 2", len(lines))
	}
	format, err := strconv.Atoi(lines[0])
	if err != nil || format < 1 || format > 2 {
		return Layout{}, corrupt.Errorf(key, 0, "ledger layout", "format %.20q", lines[0])
	}
	parts := strings.Split(strings.TrimSpace(lines[1]), ":")
	if len(parts) != 2 || parts[0] == "" {
		return Layout{}, corrupt.Errorf(key, 0, "ledger layout", "%.80q is not CLASS:VERSION", lines[1])
	}
	v, err := strconv.Atoi(parts[1])
	if err != nil || v < 0 {
		return Layout{}, corrupt.Errorf(key, 0, "ledger layout", "version %.20q", parts[1])
	}
	class := parts[0]
	switch class { // names of format 1
	case "flat":
		class = layoutPackage + "FlatLedgerManagerFactory"
	case "hierarchical":
		class = layoutPackage + "HierarchicalLedgerManagerFactory"
	}
	return Layout{Class: class, Version: v}, nil
}

// Cluster is the view of the records that make a root a cluster.
type Cluster struct {
	store Store
	root  string
}

// NewCluster returns the view of the cluster under root.
func NewCluster(s Store, root string) *Cluster { return &Cluster{store: s, root: root} }

// ErrInitialized is returned by Init when there is a cluster already.
var ErrInitialized = errors.New("metadata: the root holds a cluster already")

// Init makes the cluster: root, available, available/readonly, INSTANCEID and LAYOUT, all in one transaction, so that
// there is never half a cluster. It returns the new instance id, or that of the cluster that is there with ErrInitialized.
func (c *Cluster) Init(ctx context.Context) (string, error) {
	for pause := newBackoff(); ; {
		id, err := c.InstanceID(ctx)
		if err == nil {
			return id, ErrInitialized
		}
		if !errors.Is(err, ErrNotInitialized) {
			return "", fmt.Errorf("init cluster: %w", err)
		}
		id, err = c.tryInit(ctx)
		if err == nil {
			return id, nil
		}
		if errors.Is(err, ErrUnknownOutcome) {
			// A second transaction is harmless: only one of them finds INSTANCEID absent.
			have, gerr := c.InstanceID(ctx)
			if gerr == nil && have == id {
				return id, nil
			}
		} else if !isConflict(err) {
			return "", fmt.Errorf("init cluster: %w", err)
		}
		if werr := pause.wait(ctx); werr != nil {
			return "", fmt.Errorf("init cluster: %w: %w", werr, err)
		}
	}
}

func (c *Cluster) tryInit(ctx context.Context) (string, error) {
	id := uuid.NewString()
	puts := []Put{{Key: c.root + "/" + nameInstance, Value: []byte(id), Version: Absent}}
	// Parents and LAYOUT may be there without INSTANCEID: sequences put their parents, and Java clients write LAYOUT.
	for _, p := range []Put{
		{Key: c.root},
		{Key: c.root + "/" + nameAvailable},
		{Key: c.root + "/" + nameAvailable + "/" + nameReadOnly},
		{Key: c.root + "/" + nameLayout, Value: EncodeLayout(c.newLayout())},
	} {
		p.Version = Absent
		_, err := c.store.Get(ctx, p.Key)
		if errors.Is(err, ErrNotFound) {
			puts = append(puts, p)
		} else if err != nil {
			return id, err
		}
	}
	_, err := c.store.Txn(ctx, Txn{Puts: puts})
	return id, err
}

// InstanceID returns the cluster's random id, or ErrNotInitialized.
func (c *Cluster) InstanceID(ctx context.Context) (string, error) {
	kv, err := c.store.Get(ctx, c.root+"/"+nameInstance)
	if errors.Is(err, ErrNotFound) {
		return "", fmt.Errorf("%s: %w", c.root, ErrNotInitialized)
	}
	if err != nil {
		return "", fmt.Errorf("read instance id: %w", err)
	}
	id := strings.TrimSpace(string(kv.Value))
	if _, err := uuid.Parse(id); err != nil {
		return "", fmt.Errorf("read instance id: %w", corrupt.New(kv.Key, 0, "instance id", err))
	}
	return id, nil
}

// Layout returns the stored layout. A cluster without one, as Pulsar makes them, has the default. A layout other than the one
// that the service URI names is ErrLayout.
func (c *Cluster) Layout(ctx context.Context) (Layout, error) {
	kv, err := c.store.Get(ctx, c.root+"/"+nameLayout)
	if errors.Is(err, ErrNotFound) {
		return c.newLayout(), nil
	}
	if err != nil {
		return Layout{}, fmt.Errorf("read layout: %w", err)
	}
	l, err := DecodeLayout(kv.Key, kv.Value)
	if err != nil {
		return Layout{}, err
	}
	if want, ok := c.wantedLayout(); ok && want.Class != l.Class {
		return Layout{}, fmt.Errorf("%w: the URI asks for %s, the cluster has %s", ErrLayout, want.Class, l.Class)
	}
	return l, nil
}

func (c *Cluster) wantedLayout() (Layout, bool) {
	if lc, ok := c.store.(LayoutChooser); ok {
		return lc.WantedLayout()
	}
	return Layout{}, false
}

// newLayout is the layout of a cluster that has none yet.
func (c *Cluster) newLayout() Layout {
	if l, ok := c.wantedLayout(); ok {
		return l
	}
	return DefaultLayout
}

// Format wipes the cluster and gives it a new instance id, which it returns: ledger records, under-replication marks and
// locks, and cookies go; every bookie's directories become foreign. The id generators and the incarnation records stay, so
// that neither a ledger id nor a bookie's incarnation is ever used twice. It refuses while a bookie is registered.
//
// The instance id is replaced first, so that a bookie which starts in the middle is refused; then the records go, page by
// page. An interrupted Format is finished by calling it again.
func (c *Cluster) Format(ctx context.Context) (string, error) {
	bookies, err := NewBookies(c.store, c.root).List(ctx, AnyKind)
	if err != nil {
		return "", fmt.Errorf("format cluster: %w", err)
	}
	if len(bookies) > 0 {
		return "", fmt.Errorf("format cluster: %d bookies are registered (the first is %s): stop them before", len(bookies), bookies[0].ID)
	}
	if _, err := c.InstanceID(ctx); err != nil && !errors.Is(err, ErrNotInitialized) {
		return "", fmt.Errorf("format cluster: %w", err)
	}
	id := uuid.NewString()
	if _, err := c.store.Put(ctx, c.root+"/"+nameInstance, []byte(id), Any); err != nil {
		return "", fmt.Errorf("format cluster: %w", err)
	}
	prefixes := []string{
		c.root + "/" + nameCookies + "/",
		c.root + "/" + nameUnderRep + "/ledgers/",
		c.root + "/" + nameUnderRep + "/locks/",
	}
	for d := '0'; d <= '9'; d++ { // everything that starts with a digit is a ledger record or its parent
		prefixes = append(prefixes, c.root+"/"+string(d))
	}
	for _, p := range prefixes {
		if err := c.deleteAll(ctx, p); err != nil {
			return "", fmt.Errorf("format cluster: %w", err)
		}
	}
	if _, err := c.store.Put(ctx, c.root+"/"+nameLayout, EncodeLayout(c.newLayout()), Any); err != nil {
		return "", fmt.Errorf("format cluster: %w", err)
	}
	return id, nil
}

// deleteAll removes every key under prefix. Where keys have directories, one walk removes the leaves and the next those that
// were their parents.
func (c *Cluster) deleteAll(ctx context.Context, prefix string) error {
	for {
		found, removed, err := c.deleteWalk(ctx, prefix)
		if found == 0 || err != nil {
			return err
		}
		if removed == 0 {
			return fmt.Errorf("delete %s: %w", prefix, ErrNotEmpty)
		}
	}
}

// deleteWalk removes every key under prefix that has none below it.
func (c *Cluster) deleteWalk(ctx context.Context, prefix string) (found, removed int, err error) {
	for after := ""; ; {
		keys, err := c.store.Keys(ctx, prefix, after, pageSize)
		if err != nil || len(keys) == 0 {
			return found, removed, err
		}
		found += len(keys)
		after = keys[len(keys)-1]
		slices.Reverse(keys)
		for part := range slices.Chunk(keys, TxnMax) {
			n, err := c.deletePart(ctx, part)
			if err != nil {
				return found, removed, err
			}
			removed += n
		}
	}
}

// deletePart removes keys in one transaction, or, when one of them has others below that a later page names, one by one.
func (c *Cluster) deletePart(ctx context.Context, keys []string) (removed int, err error) {
	if err = c.deleteKeys(ctx, keys); err == nil {
		return len(keys), nil
	}
	if !errors.Is(err, ErrNotEmpty) {
		return 0, err
	}
	if len(keys) == 1 {
		return 0, nil
	}
	for i := range keys {
		n, err := c.deletePart(ctx, keys[i:i+1])
		if err != nil {
			return removed, err
		}
		removed += n
	}
	return removed, nil
}

// deleteKeys removes keys in one transaction. One whose outcome is unknown is met again by the next walk.
func (c *Cluster) deleteKeys(ctx context.Context, keys []string) error {
	var t Txn
	for _, k := range keys {
		t.Deletes = append(t.Deletes, Delete{Key: k, Version: Any})
	}
	if _, err := c.store.Txn(ctx, t); err != nil && !errors.Is(err, ErrUnknownOutcome) {
		return err
	}
	return nil
}
