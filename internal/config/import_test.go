package config

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseProperties(t *testing.T) {
	got, err := ParseProperties("bk.conf", []byte("# a comment\r\n! another\n\n  bookiePort=3181\nzkServers : a:1,b:2\nledgerDirectories /a, \\\n    /b\n"+
		"key\\ with\\=signs=v\\tw\\u00e4\\ud83d\\ude00\nempty=\nlast=1\nlast=2 \nalone\nend=\\"))
	require.NoError(t, err)
	require.Equal(t, []Property{
		{"bookiePort", "3181", "bk.conf:4"},
		{"zkServers", "a:1,b:2", "bk.conf:5"},
		{"ledgerDirectories", "/a, /b", "bk.conf:6"},
		{"key with=signs", "v\twä😀", "bk.conf:8"},
		{"empty", "", "bk.conf:9"},
		{"last", "2 ", "bk.conf:11"},
		{"alone", "", "bk.conf:12"},
		{"end", "", "bk.conf:13"},
	}, got)
	for _, bad := range []string{"a=\\u12", "a=\\uzzzz"} {
		_, err := ParseProperties("bk.conf", []byte(bad))
		require.ErrorContains(t, err, "bk.conf:1")
	}
	_, err = ParseProperties("bk.conf", make([]byte, fileBytesMax+1))
	require.ErrorContains(t, err, "larger than 1 MiB")
}

func FuzzParseProperties(f *testing.F) {
	f.Add([]byte("a=b\n# c\nd : e\\\n f\n\\u0041=\\\\"))
	f.Add([]byte("ledgerDirectories=/a,/b\nextraServerComponents=x\nnonsense"))
	f.Fuzz(func(t *testing.T, data []byte) {
		props, err := ParseProperties("f", data)
		if err != nil {
			return
		}
		im := Import(props, ImportOptions{})
		for _, k := range im.Keys {
			if k.Class == "" {
				t.Fatalf("%q has no class", k.Key)
			}
		}
		// Whatever the foreign file says, ours can be parsed; its values may still be refused.
		_, err = LoadText(im.TOML)
		var problems ProblemsError
		if err != nil && !errors.As(err, &problems) {
			t.Fatal(err)
		}
		for _, p := range problems {
			if p.Key == "" && !strings.Contains(p.Msg, "larger than") || strings.Contains(p.Msg, "no such setting") {
				t.Fatalf("%s\n%s", p, im.TOML)
			}
		}
	})
}

func writeBytes(t *testing.T, text []byte) string { return write(t, string(text)) }

// TestEveryStockKeyHasAClass: no key of the configuration files that BookKeeper and Pulsar ship is unknown.
func TestEveryStockKeyHasAClass(t *testing.T) {
	data, err := os.ReadFile("testdata/bookkeeper-keys.txt")
	require.NoError(t, err)
	keys := strings.Fields(string(data))
	require.Greater(t, len(keys), 210)
	var props []Property
	for _, k := range keys {
		props = append(props, Property{Key: k})
	}
	im := Import(props, ImportOptions{})
	for _, k := range im.Keys {
		require.NotEqual(t, ImportUnknown, k.Class, k.Key)
		require.NotEmpty(t, k.Note+k.To, k.Key)
	}
	l, err := Load(Options{File: writeBytes(t, im.TOML), Incomplete: true})
	require.NoError(t, err, "%s", im.TOML)
	def, err := Load(Options{Incomplete: true})
	require.NoError(t, err)
	require.Empty(t, Diff(def, l), "empty values are defaults")
}

// importOf imports a text and loads the result.
func importOf(t *testing.T, text string) (*Imported, *Loaded, map[string]ImportedKey) {
	t.Helper()
	props, err := ParseProperties("bk.conf", []byte(text))
	require.NoError(t, err)
	im := Import(props, ImportOptions{
		HostName: func() (string, error) { return "node7.example.org", nil },
		CheckURI: func(uri string) error {
			if strings.Contains(uri, "oxia") {
				return errors.New("oxia is not supported")
			}
			return nil
		},
	})
	l, err := Load(Options{File: writeBytes(t, im.TOML), Incomplete: true})
	require.NoError(t, err, "%s", im.TOML)
	keys := map[string]ImportedKey{}
	for _, k := range im.Keys {
		keys[k.Key] = k
	}
	return im, l, keys
}

func TestImport(t *testing.T) {
	im, l, keys := importOf(t, `
bookiePort=3182
listeningInterface=eth1
useHostNameAsBookieID=true
journalDirectory=/old
journalDirectories=/j1,/j2
ledgerDirectories=/l1, /l2
indexDirectories=/i1,/i2
journalMaxGroupWaitMSec=5
journalMaxSizeMB=2048
gcWaitTime=300000
minorCompactionThreshold=0.1
minorCompactionInterval=600
majorCompactionThreshold=-1
majorCompactionInterval=86400
isThrottleByBytes=true
compactionRateByBytes=50000000
diskUsageThreshold=0.85f
readOnlyModeOnAnyDiskFullEnabled=false
zkServers=zk1:2181,zk2:2181
zkLedgersRootPath=/bk/ledgers
zkTimeout=20000
httpServerEnabled=true
httpServerPort=8001
prometheusStatsHttpPort=8000
dbStorage_writeCacheMaxSizeMb=
dbStorage_readAheadCacheMaxSizeMb=256
nettyMaxFrameSizeBytes=5253120
serverNumIOThreads=16
dbStorage_rocksDB_blockSize=65536
passwd=hunter2
tlsKeyStorePassword=x
skipReplayJournalInvalidRecord=true
ledgerStorageClass=org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage
reppDnsResolverClass=org.apache.pulsar.zookeeper.ZkBookieRackAffinityMapping
journalMaxSizeMb=3
waitTimeoutOnResponseBackpressureMs=-1
`)
	require.Equal(t, "%eth1:3182", l.Bookie.Listen)
	require.Equal(t, "node7.example.org", l.Bookie.AdvertisedAddress)
	require.Equal(t, []string{"/j1", "/j2"}, l.Storage.JournalDirs)
	require.Equal(t, []string{"/l1", "/l2"}, l.Storage.LedgerDirs)
	require.Equal(t, []string{"/i1", "/i2"}, l.Storage.IndexDirs)
	require.Equal(t, "5ms", l.Journal.MaxGroupWait.String())
	require.Equal(t, Size(2*gib), l.Journal.SegmentSize)
	require.Equal(t, "5m", l.GC.Interval.String())
	require.Equal(t, 0.1, l.GC.MinorBelow)
	require.Equal(t, "10m", l.GC.MinorEvery.String())
	require.Equal(t, "87600h", l.GC.MajorEvery.String(), "never")
	require.Equal(t, Size(50_000_000), l.GC.Rate)
	require.Equal(t, 0.85, l.Disk.FullAt)
	require.Equal(t, 0.80, l.Disk.WarnAt)
	require.Equal(t, 0.82, l.Disk.ResumeBelow)
	require.Equal(t, "all", l.Disk.ReadOnlyWhen)
	require.Equal(t, "zk://zk1:2181;zk2:2181/bk/ledgers", l.Metadata.URI)
	require.Equal(t, "20s", l.Metadata.Timeout.String())
	require.Equal(t, "0.0.0.0:8001", l.HTTP.Listen)
	require.Equal(t, AutoSize, l.Storage.CacheWrite)
	require.Equal(t, Size(256*mib), l.Storage.CacheRead)

	for key, want := range map[string]string{
		"bookiePort": ImportMapped, "listeningInterface": ImportMapped, "useHostNameAsBookieID": ImportMapped, "journalDirectory": ImportAutomatic,
		"journalDirectories": ImportMapped, "zkLedgersRootPath": ImportMapped, "prometheusStatsHttpPort": ImportAutomatic, "nettyMaxFrameSizeBytes": ImportMapped,
		"serverNumIOThreads": ImportObsolete, "dbStorage_rocksDB_blockSize": ImportObsolete, "skipReplayJournalInvalidRecord": ImportRefused,
		"ledgerStorageClass": ImportAutomatic, "reppDnsResolverClass": ImportMapped, "journalMaxSizeMb": ImportUnknown, "tlsKeyStorePassword": ImportUnknown,
		"waitTimeoutOnResponseBackpressureMs": ImportAutomatic, "majorCompactionInterval": ImportMapped, "dbStorage_writeCacheMaxSizeMb": ImportAutomatic,
	} {
		require.Equal(t, want, keys[key].Class, "%+v", keys[key])
	}
	require.Equal(t, `bookie.listen = "%eth1:3182"`, keys["listeningInterface"].To)
	require.Contains(t, keys["nettyMaxFrameSizeBytes"].To, "(the default)")
	require.Contains(t, keys["journalMaxSizeMb"].Note, "did you mean journalMaxSizeMB?")
	require.Equal(t, 1, im.Count(ImportRefused))
	require.Equal(t, 2, im.Count(ImportUnknown))
	toml := string(im.TOML)
	require.NotContains(t, toml, "hunter2")
	require.NotContains(t, toml, "max_frame", "a default is not written")
	require.Contains(t, toml, "# journalMaxSizeMB\n")
	require.Contains(t, toml, "#   skipReplayJournalInvalidRecord=true")
	require.Contains(t, toml, "#   journalMaxSizeMb=3")
}

func TestImportVariants(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		key, want  string // one of our settings and its value
		old, class string // one of the old keys
		note       string
	}{
		{"metadataServiceUri wins", "metadataServiceUri=metadata-store:zk:a:1\nzkServers=b:1\n", "metadata.uri", `"metadata-store:zk:a:1"`, "zkServers", ImportAutomatic, "wins"},
		{"unknown driver", "metadataServiceUri=metadata-store:oxia://h:1/x\n", "metadata.uri", `""`, "metadataServiceUri", ImportRefused, "oxia"},
		{"explicit id", "bookieId=bk-1\n", "bookie.id", `"bk-1"`, "bookieId", ImportMapped, ""},
		{"advertised wins", "advertisedAddress=10.0.0.1\nuseHostNameAsBookieID=true\n", "bookie.advertised_address", `"10.0.0.1"`, "useHostNameAsBookieID", ImportAutomatic, "wins"},
		{"short name", "useHostNameAsBookieID=true\nuseShortHostName=true\n", "bookie.advertised_address", `"node7"`, "useShortHostName", ImportMapped, ""},
		{"port 0", "bookiePort=0\n", "bookie.listen", `"0.0.0.0:3181"`, "bookiePort", ImportRefused, "no port"},
		{"relaxed", "journalSyncData=false\n", "journal.io", `"buffered"`, "journalSyncData", ImportMapped, ""},
		{"no journal", "journalWriteData=false\n", "journal.durability", `"sync"`, "journalWriteData", ImportRefused, "without a journal"},
		{"no group wait", "journalAdaptiveGroupWrites=false\njournalMaxGroupWaitMSec=9\n", "journal.max_group_wait", `"0s"`, "journalMaxGroupWaitMSec", ImportAutomatic, "off"},
		{"stock group wait", "journalMaxGroupWaitMSec=2\n", "journal.max_group_wait", `"auto"`, "journalMaxGroupWaitMSec", ImportAutomatic, "without waiting"},
		{"slow compaction", "isThrottleByBytes=true\ncompactionRateByBytes=1000000\n", "gc.rate", `"1MiB"`, "compactionRateByBytes", ImportMapped, "raised"},
		{"by entries", "compactionRateByBytes=5000000\n", "gc.rate", `"auto"`, "compactionRateByBytes", ImportAutomatic, "isThrottleByBytes"},
		{"prometheus only", "prometheusStatsHttpPort=9000\n", "http.listen", `"0.0.0.0:9000"`, "prometheusStatsHttpPort", ImportMapped, ""},
		{"script", "networkTopologyScriptFileName=/r.sh\n", "placement.rack_source", `"script:/r.sh"`, "networkTopologyScriptFileName", ImportMapped, ""},
		{"resolver", "reppDnsResolverClass=com.example.Mine\n", "placement.rack_source", `"pulsar-zk"`, "reppDnsResolverClass", ImportRefused, "racks come from"},
		{"placement", "ensemblePlacementPolicy=org.x.MyPolicy\n", "bookie.id", `""`, "ensemblePlacementPolicy", ImportRefused, "racks and regions"},
		{"tls", "tlsProviderFactoryClass=org.apache.bookkeeper.tls.TLSContextFactory\n", "tls.cert", `""`, "tlsProviderFactoryClass", ImportRefused, "TLS"},
		{"no number", "gcWaitTime=soon\n", "gc.interval", `"15m"`, "gcWaitTime", ImportRefused, "whole number"},
		{"no boolean", "allowStorageExpansion=perhaps\n", "storage.allow_expansion", "false", "allowStorageExpansion", ImportRefused, "neither"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, l, keys := importOf(t, tc.text)
			s, _ := Lookup(tc.key)
			require.Equal(t, tc.want, s.Format(&l.Config))
			require.Equal(t, tc.class, keys[tc.old].Class, "%+v", keys[tc.old])
			require.Contains(t, keys[tc.old].Note, tc.note)
		})
	}
}

func TestImportEnvironment(t *testing.T) {
	props, err := ParseProperties("bk.conf", []byte("bookiePort=1\nflushInterval=1000\n"))
	require.NoError(t, err)
	over := EnvironmentProperties("PULSAR_PREFIX_", []string{"PULSAR_PREFIX_bookieId=b", "PULSAR_PREFIX_bookiePort=5", "HOME=/", "PULSAR_PREFIX_="})
	require.Equal(t, []Property{
		{"bookiePort", "5", "environment PULSAR_PREFIX_bookiePort"}, {"flushInterval", "1000", "bk.conf:2"}, {"bookieId", "b", "environment PULSAR_PREFIX_bookieId"},
	}, OverrideProperties(props, over))
	require.Empty(t, EnvironmentProperties("", []string{"A=b"}))
}
