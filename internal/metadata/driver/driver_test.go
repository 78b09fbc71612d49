package driver

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/internal/metadata/etcdmeta"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestParse(t *testing.T) {
	for uri, want := range map[string]Target{
		"etcd://h:2379":                                      {Driver: "etcd", Endpoints: []string{"h:2379"}, Root: "/ledgers"},
		"etcd://h1:2379;h2:2379,h3:1/a/b/":                   {Driver: "etcd", Endpoints: []string{"h1:2379", "h2:2379", "h3:1"}, Root: "/a/b"},
		"ETCD+hierarchical://[::1]:2379/ledgers":             {Driver: "etcd", Endpoints: []string{"[::1]:2379"}, Root: "/ledgers"},
		"metadata-store:etcd:http://h1:2379,https://h2:2379": {Driver: "etcd", Endpoints: []string{"http://h1:2379", "https://h2:2379"}, Root: "/ledgers"},
		"metadata-store:etcd:http://h1:2379/;http://h2:2379": {Driver: "etcd", Endpoints: []string{"http://h1:2379", "http://h2:2379"}, Root: "/ledgers"},
		"metadata-store:etcd:h1:2379":                        {Driver: "etcd", Endpoints: []string{"h1:2379"}, Root: "/ledgers"},
		"zk://h:2181/ledgers":                                {Driver: "zk", Votes: true, Endpoints: []string{"h:2181"}, Root: "/ledgers"},
		"zk+null://h/c1/ledgers":                             {Driver: "zk", Votes: true, Endpoints: []string{"h:2181"}, Root: "/c1/ledgers"},
		"zk+hierarchical://h1:1;h2:2,[::1]/l":                {Driver: "zk", Votes: true, Endpoints: []string{"h1:1", "h2:2", "[::1]:2181"}, Root: "/l", Layout: metadata.DefaultLayout},
		"ZK+LongHierarchical://h:1/l":                        {Driver: "zk", Votes: true, Endpoints: []string{"h:1"}, Root: "/l", Layout: metadata.LongLayout},
		"metadata-store:zk:h1:1,h2:2/c1":                     {Driver: "zk", Endpoints: []string{"h1:1", "h2:2"}, Root: "/c1/ledgers"},
		"metadata-store:zk:h1:1;h2:2":                        {Driver: "zk", Endpoints: []string{"h1:1", "h2:2"}, Root: "/ledgers"},
		"metadata-store:h1:1,h2:2":                           {Driver: "zk", Endpoints: []string{"h1:1", "h2:2"}, Root: "/ledgers"},
		"mem://x":                                            {Driver: "mem", Name: "x", Root: "/ledgers"},
		" mem://x/y ":                                        {Driver: "mem", Name: "x", Root: "/y"},
	} {
		got, err := Parse(uri)
		require.NoError(t, err, uri)
		require.Equal(t, want, got)
	}
	for uri, says := range map[string]string{
		"":                                "no scheme",
		"127.0.0.1:2379":                  "no scheme",
		"etcd://":                         "no endpoint",
		"etcd://h":                        "host:port",
		"etcd://h:x/ledgers":              "host:port",
		"etcd://h:2379/a//b":              "ledgers root",
		"etcd://h:2379/ledgers?x=1":       "not known",
		"etcd+flat://h:2379":              "ledger manager",
		"etcd://u@h:2379":                 "host:port",
		"mem://":                          "no name",
		"zk://h:2181":                     "no ledgers root",
		"zk://h:2181/":                    "no ledgers root",
		"zk:///ledgers":                   "no endpoint",
		"zk+flat://h:2181/ledgers":        "ledger manager",
		"zk+ms://h:2181/ledgers":          "ledger manager",
		"zk://h:x/ledgers":                "host:port",
		"zk://http://h:1/ledgers":         "ledgers root",
		"metadata-store:zk:h:2181/a//b":   "ledgers root",
		"metadata-store:oxia://h:6648/ns": "oxia",
		"metadata-store:rocksdb:///x":     "rocksdb",
		"metadata-store:etcd:":            "no endpoint",
		"metadata-store:etcd:ftp://h:1":   "http and https",
		"postgres://x":                    "not known",
	} {
		_, err := Parse(uri)
		require.ErrorIs(t, err, ErrURI, uri)
		require.ErrorContains(t, err, says, uri)
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"etcd://h1:2379;h2:2379/ledgers", "metadata-store:etcd:http://h:1,http://i:2", "mem://a/b", "zk://x/y"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, uri string) {
		target, err := Parse(uri)
		if err != nil {
			return
		}
		if target.Root == "" || target.Root[0] != '/' || target.Driver == "etcd" && len(target.Endpoints) == 0 {
			t.Fatalf("%q parsed to %+v", uri, target)
		}
	})
}

func TestOpen(t *testing.T) {
	ctx := context.Background()
	e, err := etcdmeta.StartEmbedded(ctx, etcdmeta.EmbeddedOptions{Dir: t.TempDir(), UnsafeNoSync: true})
	require.NoError(t, err)
	defer e.Close()
	ep := e.Endpoints()[0]
	for _, uris := range [][2]string{
		{"etcd://" + ep, "metadata-store:etcd:http://" + ep},
		{"mem://driver-test", "mem://driver-test/ledgers"},
	} {
		// Both spellings mean the same store and root.
		a, root, err := Open(ctx, uris[0], Options{})
		require.NoError(t, err)
		_, err = metadata.NewCluster(a, root).Init(ctx)
		require.NoError(t, err)
		b, root, err := Open(ctx, uris[1], Options{})
		require.NoError(t, err)
		_, err = metadata.LoadViews(ctx, b, root)
		require.NoError(t, err)
		require.NoError(t, a.Close())
		require.NoError(t, b.Close())
	}
	_, _, err = Open(ctx, "zk://h:2181", Options{})
	require.ErrorIs(t, err, ErrURI)
	for _, uri := range []string{"etcd://127.0.0.1:1", "zk://127.0.0.1:1/ledgers"} {
		begun := time.Now()
		_, _, err = Open(ctx, uri, Options{Timeout: 300 * time.Millisecond})
		require.ErrorIs(t, err, metadata.ErrUnavailable)
		require.Less(t, time.Since(begun), time.Minute)
	}
}
