// Package driver opens the metadata store that a service URI names.
//
//	etcd://host:port;host:port/root        etcd, default root /ledgers
//	metadata-store:etcd:http://h:p,h:p     the same, as Pulsar writes it
//	zk://host:port;host:port/root          ZooKeeper, with the ledger layout that is stored there
//	zk+hierarchical://..., zk+longhierarchical://...   the same; the layout must be this one, or becomes it
//	metadata-store:zk:h:p,h:p/chroot       ZooKeeper with the root /chroot/ledgers, as Pulsar writes it
//	mem://name/root                        a store in this process's memory, shared by all who open that name
//
// The package holds no state and starts no goroutine of its own.
package driver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/internal/metadata/etcdmeta"
	"github.com/binderylog/bindery/internal/metadata/memmeta"
	"github.com/binderylog/bindery/internal/metadata/zkmeta"
)

// Options apply to every driver that knows them.
type Options struct {
	Timeout    time.Duration // of one call, retries included; default 30 s
	SessionTTL time.Duration // life of ephemeral keys after their process; default 10 s
	TLS        *tls.Config
	Username   string
	Password   string
	Logger     *slog.Logger
}

// ErrURI is returned for a service URI that cannot be understood or that needs a driver this version does not have.
var ErrURI = errors.New("metadata URI")

// Target is a parsed service URI.
type Target struct {
	Driver    string          // "etcd", "zk" or "mem"
	Endpoints []string        // of etcd or ZooKeeper
	Name      string          // of a memory store
	Root      string          // ledgers root
	Layout    metadata.Layout // that the URI asks for; the zero value: any
	Votes     bool            // auditors are elected as Java's own ZooKeeper driver does it
}

// Parse reads a service URI.
func Parse(uri string) (Target, error) {
	t, err := parse(strings.TrimSpace(uri))
	if err != nil {
		return Target{}, fmt.Errorf("%w %q: %w", ErrURI, uri, err)
	}
	return t, nil
}

func parse(uri string) (Target, error) {
	if rest, ok := cutPrefixFold(uri, "metadata-store:"); ok {
		return parsePulsar(rest)
	}
	scheme, rest, ok := strings.Cut(uri, "://")
	if !ok {
		return Target{}, errors.New("has no scheme; write for example etcd://127.0.0.1:2379" + metadata.DefaultRoot)
	}
	name, manager, _ := strings.Cut(strings.ToLower(scheme), "+")
	switch name {
	case "etcd":
		if manager != "" && manager != "hierarchical" {
			return Target{}, fmt.Errorf("ledger manager %q does not exist on etcd (leave it out)", manager)
		}
		return parseEtcd(rest)
	case "mem":
		n, root := splitPath(rest)
		if n == "" {
			return Target{}, errors.New("has no name; write mem://NAME")
		}
		root, err := metadata.CleanRoot(root)
		return Target{Driver: "mem", Name: n, Root: root}, err
	case "zk":
		return parseZooKeeper(manager, rest)
	}
	return Target{}, fmt.Errorf("driver %q is not known; etcd://, zk:// and metadata-store: are", name)
}

// zkLayouts are the ledger managers that a zk URI may name.
var zkLayouts = map[string]metadata.Layout{
	"":                 {},
	"null":             {},
	"hierarchical":     metadata.DefaultLayout,
	"longhierarchical": metadata.LongLayout,
}

func parseZooKeeper(manager, rest string) (Target, error) {
	layout, ok := zkLayouts[manager]
	if !ok {
		return Target{}, fmt.Errorf("ledger manager %q is not supported; hierarchical and longhierarchical are", manager)
	}
	authority, path := splitPath(rest)
	if strings.ContainsAny(rest, "?#") {
		return Target{}, errors.New("parameters after '?' or '#' are not known")
	}
	if strings.Trim(path, "/") == "" {
		return Target{}, errors.New("has no ledgers root; write for example zk://127.0.0.1:2181" + metadata.DefaultRoot)
	}
	root, err := metadata.CleanRoot(path)
	if err != nil {
		return Target{}, err
	}
	servers, err := zkServers(authority)
	return Target{Driver: "zk", Endpoints: servers, Root: root, Layout: layout, Votes: true}, err
}

// zkServers splits a list of ZooKeeper servers at ';' or ','. The port may be left out.
func zkServers(list string) ([]string, error) {
	var withPort []string
	for _, e := range strings.FieldsFunc(list, func(r rune) bool { return r == ';' || r == ',' }) {
		if _, _, ok := cutLast(strings.TrimSuffix(e, "]"), ":"); !ok || strings.HasSuffix(e, "]") {
			e += ":2181"
		}
		if strings.Contains(e, "://") {
			return nil, fmt.Errorf("server %q: must be host:port", e)
		}
		withPort = append(withPort, e)
	}
	return endpoints(strings.Join(withPort, ";"))
}

func parseEtcd(rest string) (Target, error) {
	authority, path := splitPath(rest)
	if strings.ContainsAny(rest, "?#") {
		return Target{}, errors.New("parameters after '?' or '#' are not known")
	}
	root, err := metadata.CleanRoot(path)
	if err != nil {
		return Target{}, err
	}
	eps, err := endpoints(authority)
	return Target{Driver: "etcd", Endpoints: eps, Root: root}, err
}

// parsePulsar reads what follows "metadata-store:". The root is always the default one, as in Pulsar; a path behind
// ZooKeeper's servers is a chroot, which comes before it. A bare list of servers means ZooKeeper.
func parsePulsar(rest string) (Target, error) {
	if list, ok := cutPrefixFold(rest, "etcd:"); ok {
		eps, err := endpoints(list)
		return Target{Driver: "etcd", Endpoints: eps, Root: metadata.DefaultRoot}, err
	}
	list, isZK := cutPrefixFold(rest, "zk:")
	if scheme, _, _ := strings.Cut(rest, ":"); !isZK {
		switch s := strings.ToLower(scheme); s {
		case "rocksdb", "memory", "oxia":
			return Target{}, fmt.Errorf("the %s store of Pulsar is not supported; metadata-store:etcd: and metadata-store:zk: are", s)
		}
	}
	authority, chroot := splitPath(strings.TrimPrefix(list, "//"))
	if strings.ContainsAny(list, "?#") {
		return Target{}, errors.New("parameters after '?' or '#' are not known")
	}
	root, err := metadata.CleanRoot(strings.TrimSuffix(chroot, "/") + metadata.DefaultRoot)
	if err != nil {
		return Target{}, err
	}
	servers, err := zkServers(authority)
	return Target{Driver: "zk", Endpoints: servers, Root: root}, err
}

// endpoints splits a list of servers at ';' or ','.
func endpoints(list string) ([]string, error) {
	var out []string
	for _, e := range strings.FieldsFunc(list, func(r rune) bool { return r == ';' || r == ',' }) {
		hostport := e
		if s, rest, ok := strings.Cut(e, "://"); ok {
			if s != "http" && s != "https" {
				return nil, fmt.Errorf("endpoint %q: http and https are possible", e)
			}
			hostport = strings.TrimSuffix(rest, "/")
			e = s + "://" + hostport
		}
		if strings.ContainsAny(hostport, "/?#@ ") {
			return nil, fmt.Errorf("endpoint %q: must be host:port", e)
		}
		host, port, ok := cutLast(hostport, ":")
		if !ok || host == "" || port == "" || strings.Trim(port, "0123456789") != "" {
			return nil, fmt.Errorf("endpoint %q: must be host:port", e)
		}
		out = append(out, e)
	}
	if len(out) == 0 {
		return nil, errors.New("names no endpoint (host:port)")
	}
	return out, nil
}

func splitPath(rest string) (authority, path string) {
	if i := strings.IndexByte(rest, '/'); i >= 0 {
		return rest[:i], rest[i:]
	}
	return rest, ""
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

func cutPrefixFold(s, prefix string) (string, bool) {
	if len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix) {
		return s[len(prefix):], true
	}
	return s, false
}

// Open connects to the store that uri names and returns it with the ledgers root. The caller closes it.
func Open(ctx context.Context, uri string, o Options) (metadata.Store, string, error) {
	t, err := Parse(uri)
	if err != nil {
		return nil, "", err
	}
	var store metadata.Store
	switch t.Driver {
	case "mem":
		store = memmeta.Open(t.Name)
	case "zk":
		store, err = zkmeta.Open(ctx, zkmeta.Options{
			Servers: t.Endpoints, Timeout: o.Timeout, SessionTTL: o.SessionTTL, Layout: t.Layout, Votes: t.Votes,
			TLS: o.TLS, Username: o.Username, Password: o.Password, Logger: o.Logger,
		})
	default:
		store, err = etcdmeta.Open(ctx, etcdmeta.Options{
			Endpoints: t.Endpoints, Timeout: o.Timeout, SessionTTL: o.SessionTTL,
			TLS: o.TLS, Username: o.Username, Password: o.Password, Logger: o.Logger,
		})
	}
	if err != nil {
		return nil, "", err
	}
	return store, t.Root, nil
}
