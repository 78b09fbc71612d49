package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func write(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "bindery.toml")
	require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	return name
}

const minimal = `[metadata]
uri = "etcd://127.0.0.1:2379/ledgers"
`

func TestDefaults(t *testing.T) {
	l, err := Load(Options{File: write(t, minimal)})
	require.NoError(t, err)
	require.Empty(t, l.Warnings)
	require.Equal(t, "0.0.0.0:3181", l.Bookie.Listen)
	require.Equal(t, []string{"bookie"}, l.Run.Roles)
	require.Equal(t, AutoSize, l.Storage.Memory)
	require.Equal(t, Duration(30*time.Second), l.Storage.FlushInterval)
	require.Equal(t, Size(256<<20), l.Journal.SegmentSize)
	require.Equal(t, 0.5, l.GC.MajorBelow)
	require.Equal(t, []string{}, l.Storage.IndexDirs)
	require.Equal(t, "default", l.Origin("gc.rate").String())
	require.Contains(t, l.Origin("metadata.uri").String(), "bindery.toml:2")
}

func TestPrecedence(t *testing.T) {
	file := write(t, minimal+`[gc]
interval = "10m"
minor = { below = 0.1, every = "2h" }
rate = "50MB/s"
`)
	l, err := Load(Options{
		File:    file,
		Environ: []string{"BINDERY_GC__INTERVAL=20m", "BINDERY_GC__MINOR__BELOW=0.3", "HOME=/", "BINDERY_CRASHPOINTS=x=1"},
		Set:     []string{"gc.interval=25m"},
	})
	require.NoError(t, err)
	require.Equal(t, Duration(25*time.Minute), l.GC.Interval)
	require.Equal(t, "--set", l.Origin("gc.interval").String())
	require.Equal(t, 0.3, l.GC.MinorBelow)
	require.Equal(t, "environment BINDERY_GC__MINOR__BELOW", l.Origin("gc.minor.below").String())
	require.Equal(t, Duration(2*time.Hour), l.GC.MinorEvery)
	require.Equal(t, Size(50_000_000), l.GC.Rate)
	require.Equal(t, file+":5", l.Origin("gc.minor.every").String())
}

func TestRefusals(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		want       []string // one entry per problem, each a substring of that line
	}{
		{"unknown key", "[storage]\nmemmory = \"1GiB\"\n", []string{"bindery.toml:2: storage.memmory: no such setting; did you mean storage.memory?"}},
		{"wrong section", "[bookie]\nflush_interval = \"1s\"\n", []string{"bindery.toml:2: bookie.flush_interval: no such setting; did you mean storage.flush_interval?"}},
		{"unknown table", "[bokie]\nid = \"a\"\n", []string{"bindery.toml:2: bokie.id: no such setting; did you mean bookie.id?"}},
		{"unknown inline key", "[storage]\ncache = { rite = \"1GiB\" }\n", []string{"bindery.toml:2: storage.cache.rite: no such setting; did you mean storage.cache.write?"}},
		{"bare size", "[storage]\nmemory = 1024\n", []string{"bindery.toml:2: storage.memory: a bare number has no unit: write for example \"1024MiB\""}},
		{"bare duration", "[storage]\nflush_interval = 30\n", []string{"a bare number has no unit: write for example \"30s\""}},
		{"size without unit", "[storage]\nmemory = \"1024\"\n", []string{"\"1024\" has no unit"}},
		{"duration without unit", "[gc]\ninterval = \"15\"\n", []string{"\"15\" has no unit"}},
		{"not a table", "storage = 3\n", []string{"bindery.toml:1: storage: is a table of settings"}},
		{"wrong type", "[bookie]\nlisten = 3181\n", []string{"bindery.toml:2: bookie.listen: needs a string, not a whole number"}},
		{"list", "[storage]\njournal_dirs = \"/a\"\n", []string{"needs a list"}},
		{"list item", "[storage]\njournal_dirs = [\"/a\", 3]\n", []string{"item 2 needs to be a string"}},
		{"date", "[bookie]\nid = 1979-05-27\n", []string{"not a date or time"}},
		{"syntax", "[storage\nmemory = \"1GiB\"\n", []string{"bindery.toml:1:9: "}},
		{"twice", "[gc]\nrate = \"auto\"\nrate = \"auto\"\n", []string{"bindery.toml:3"}},
		{"two problems", "[gc]\nintervall = \"1m\"\nminor.belo = 1\n", []string{"bindery.toml:2: gc.intervall", "bindery.toml:3: gc.minor.belo"}},
		{"word", "[journal]\nio = \"fsync\"\n", []string{"bindery.toml:2: journal.io: \"fsync\" is none of auto, dsync"}},
		{"range", "[journal]\nmax_group_bytes = \"1KiB\"\n", []string{"is outside 64KiB to 8MiB"}},
		{"rate", "[recovery]\nrate = \"0B\"\n", []string{"recovery.rate: 0B is below 1B"}},
		{"group wait", "[journal]\nmax_group_wait = \"300us\"\n", []string{"outside 0 and 1ms to 20ms"}},
		{"relaxed", "[journal]\ndurability = \"relaxed\"\n", []string{"needs journal.io = \"buffered\""}},
		{"off", "[journal]\ndurability = \"off\"\n", []string{"not in this version"}},
		{"memory", "[storage]\nmemory = \"1MiB\"\n", []string{"1MiB is below 128MiB"}},
		{"gc order", "[gc]\nminor = { below = 0.6 }\n", []string{"gc.minor.below: 0.6 is not below gc.major.below"}},
		{"disk order", "[disk]\nresume_below = 0.99\n", []string{"disk.resume_below: 0.99 is not between 0 and disk.full_at = 0.95"}},
		{"tls", "[tls]\ncert = \"/x.pem\"\n", []string{"bindery.toml:2: tls.cert: TLS is not in this version; remove the setting"}},
		{"tls enabled", "[tls]\nenabled = true\n", []string{"bindery.toml:2: tls.enabled: TLS is not in this version; remove the setting"}},
		{"no quotes", "[bookie]\nid = node 1\n", []string{"bindery.toml:2:6: not valid TOML (strings need quotes)"}},
		{"unquoted path", "[bookie]\nid = /data\n", []string{"bindery.toml:2:6: not valid TOML (strings need quotes)"}},
		{"no value", "[bookie]\nid =\n", []string{"not valid TOML: a value is missing"}},
		{"tls client auth", "[tls]\nclient_auth = true\n", []string{"tls.client_auth: TLS is not in this version"}},
		{"role", "[run]\nroles = [\"bookie\", \"facade\"]\n", []string{"\"facade\" can not run: the Pulsar facade is not in this version"}},
		{"no role", "[run]\nroles = [\"broker\"]\n", []string{"\"broker\" is no role"}},
		{"bookie id", "[bookie]\nid = \"a b\"\n", []string{"allowed are letters"}},
		{"advertised", "[bookie]\nadvertised_address = \"a:1\"\n", []string{"holds a port"}},
		{"listen", "[bookie]\nlisten = \"3181\"\n", []string{"is not host:port"}},
		{"port 0", "[bookie]\nlisten = \"0.0.0.0:0\"\n", []string{"port 0 is for standalone only"}},
		{"same dir", "[storage]\njournal_dirs = [\"/a\"]\nledger_dirs = [\"/a/\"]\n", []string{"is named in storage.journal_dirs and in storage.ledger_dirs"}},
		{"index dirs", "[storage]\nledger_dirs = [\"/a\", \"/b\"]\nindex_dirs = [\"/c\"]\n", []string{"has 1 directories and storage.ledger_dirs 2"}},
		{"domain without a slash", "[bookie]\ndomain = \"rack1\"\n", []string{"neither /rack nor /region/rack"}},
		{"domain too deep", "[bookie]\ndomain = \"/a/b/c\"\n", []string{"neither /rack nor /region/rack"}},
		{"domain with an empty part", "[bookie]\ndomain = \"/a/\"\n", []string{"neither /rack nor /region/rack"}},
		{"racks", "[placement]\nrack_source = \"x\"\n", []string{"neither pulsar-zk"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Load(Options{File: write(t, tc.text), Environ: []string{"BINDERY_METADATA__URI=etcd://h:1/ledgers"}})
			var p ProblemsError
			require.ErrorAs(t, err, &p)
			require.Len(t, p, len(tc.want), "%v", err)
			for i, want := range tc.want {
				require.Contains(t, p[i].String(), want)
				require.NotContains(t, p[i].String(), "\n")
			}
		})
	}
}

// TestEveryProblemInOneRun: what can not be read, what is unknown and what is out of range, in the order of the file.
func TestEveryProblemInOneRun(t *testing.T) {
	_, err := Load(Options{File: write(t, `[gc]
interval = 15
minor = { below = 1.5, every = "48h" }
major = { below = -1.0 }
[disk]
full_at = 2.0
warn_at = -1.0
resume_below = 0.5
[storage]
journal_dirs = ["/a", "/a", ""]
ledger_dirs = ["/a", "/b"]
index_dirs = ["/c"]
memory = "1MiB"
memmory = "1GiB"
[run]
roles = ["broker", "bookie", "bookie"]
[journal]
io = "fsync"
[tls]
cert = "/x"
`), Set: []string{"gc.rate=1B"}})
	var p ProblemsError
	require.ErrorAs(t, err, &p)
	want := []string{
		"--set: gc.rate: 1B is below 1MiB", "metadata.uri: is not set",
		":2: gc.interval: a bare number", ":3: gc.minor.below: 1.5 is outside", ":3: gc.minor.every: 48h is not below gc.major.every = 24h",
		":4: gc.major.below: -1 is outside", ":6: disk.full_at: 2 is outside", ":7: disk.warn_at: -1 is not between",
		":10: storage.journal_dirs: /a is named in storage.journal_dirs and in storage.journal_dirs", ":10: storage.journal_dirs: holds an empty path",
		":11: storage.ledger_dirs: /a is named in storage.journal_dirs and in storage.ledger_dirs",
		":12: storage.index_dirs: has 1 directories and storage.ledger_dirs 2", ":13: storage.memory: 1MiB is below", ":14: storage.memmory: no such setting",
		":16: run.roles: \"broker\" is no role", ":16: run.roles: the role \"bookie\" is named twice", ":18: journal.io: \"fsync\" is none",
		":20: tls.cert: TLS is not in this version",
	}
	require.Len(t, p, len(want), "%v", err)
	for i, w := range want {
		require.Contains(t, p[i].String(), w)
	}
	_, err = Load(Options{File: write(t, "[gc\n")})
	require.ErrorAs(t, err, &p)
	require.Len(t, p, 1, "of a file that can not be parsed only that is known: %v", err)
}

func TestUnknownVariableAndSet(t *testing.T) {
	_, err := Load(Options{Environ: []string{"BINDERY_GC__INTERVALL=1m", "BINDERY_METADATA__URI=etcd://h:1/x"}, Set: []string{"gc.rat=auto", "nonsense"}})
	var p ProblemsError
	require.ErrorAs(t, err, &p)
	require.Equal(t, []string{
		"environment BINDERY_GC__INTERVALL: no such setting; did you mean BINDERY_GC__INTERVAL?",
		"--set: gc.rat: no such setting; did you mean gc.rate?",
		`--set: "nonsense" is not section.key=value`,
	}, strings.Split(p.Error(), "\n"))
}

func TestMissingURI(t *testing.T) {
	_, err := Load(Options{})
	require.ErrorContains(t, err, "metadata.uri: is not set")
	_, err = Load(Options{Set: []string{"run.roles=bookie,metadata"}})
	require.NoError(t, err)
}

func TestLenientTurnsUnknownKeysIntoWarnings(t *testing.T) {
	l, err := Load(Options{File: write(t, minimal+"[gc]\nspeed = \"1m\"\n"), Lenient: true})
	require.NoError(t, err)
	require.Len(t, l.Warnings, 1)
	require.Contains(t, l.Warnings[0].String(), "bindery.toml:4: gc.speed: no such setting")
}

func TestNoEffectIsWarned(t *testing.T) {
	l, err := Load(Options{File: write(t, minimal+"[recovery]\nlost_bookie_delay = \"5m\"\n[placement]\nmin_racks = 3\nrack_source = \"script:/r\"\n[metadata.server]\ncluster = \"bindery\"\n")})
	require.NoError(t, err)
	require.Len(t, l.Warnings, 1, "the value that equals the default is no surprise to anyone")
	require.Contains(t, l.Warnings[0].String(), "placement.rack_source: has no effect")
}

func TestMissingFile(t *testing.T) {
	_, err := Load(Options{File: filepath.Join(t.TempDir(), "none.toml")})
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestLargeFileIsRefused(t *testing.T) {
	_, err := Load(Options{File: write(t, strings.Repeat("#", fileBytesMax+1))})
	require.ErrorContains(t, err, "it has more than 1048576 bytes")
}

func TestOffloadEncryption(t *testing.T) {
	load := func(lines string) error {
		l, err := Load(Options{File: write(t, minimal+"[offload]\n"+lines)})
		if err == nil {
			require.Equal(t, "aes-256-gcm", l.Offload.Encryption)
			require.Equal(t, "file:/etc/bindery/keys", l.Offload.KeySource)
		}
		return err
	}
	require.NoError(t, load("encryption = \"aes-256-gcm\"\nkey_source = \"file:/etc/bindery/keys\"\nkey_id = \"k1\"\n"))
	require.ErrorContains(t, load("encryption = \"aes-256-gcm\"\n"), "needs offload.key_source")
	require.ErrorContains(t, load("encryption = \"rot13\"\n"), "aes-256-gcm")
	const key = "c2VjcmV0IGtleSB0aGF0IHN0YW5kcyBpbiB0aGUgZmlsZQ=="
	err := load("key_source = \"" + key + "\"\n")
	require.ErrorContains(t, err, "a key itself never stands in the configuration")
	require.NotContains(t, err.Error(), key)
	require.ErrorContains(t, load("key_source = \"command:keys\"\n"), "absolute path")
}

func TestTable(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range settings {
		require.False(t, seen[s.Key], s.Key)
		seen[s.Key] = true
		require.NotEmpty(t, s.Doc, s.Key)
		require.NotEmpty(t, s.Type(), s.Key)
		require.NotContains(t, s.Doc+s.Why+s.Range, "\n", s.Key)
		require.True(t, s.Later != "" || !s.Unsafe, s.Key)
		require.True(t, strings.HasPrefix(s.Key, "expert.") == s.Expert, s.Key)
	}
	require.Len(t, seen, 42+3+7+3+1+18, "42 of the design (cache, minor and major are two keys each), 7 added by decision, 3 for experts, bookie.domain (ADR 0015), 18 of the tier (ADR 0021); another one needs a recorded reason")
}

func TestShowRoundTrips(t *testing.T) {
	l, err := Load(Options{File: write(t, minimal+"[storage]\nmemory=\"1GiB\"\njournal_dirs=[\"/a b\", \"/c\"]\n[expert]\nmax_frame=\"2MiB\"\n")})
	require.NoError(t, err)
	var b strings.Builder
	require.NoError(t, l.WriteTOML(&b, nil, true))
	again, err := Load(Options{File: write(t, b.String())})
	require.NoError(t, err)
	require.Equal(t, l.Config, again.Config)
	require.Empty(t, Diff(l, again))

	e := l.Resolve(Machine{Memory: 8 << 30, MemorySource: "machine", Cores: 4}, 1)
	b.Reset()
	require.NoError(t, l.WriteTOML(&b, &e, false))
	require.Contains(t, b.String(), `in_flight            = "102.4MiB"`)
	require.NotContains(t, b.String(), "groups_in_flight")
	_, err = Load(Options{File: write(t, b.String())})
	require.NoError(t, err)
}

func TestLenientRefusesWhatIsUnsafeToIgnore(t *testing.T) {
	for _, o := range []Options{
		{File: write(t, minimal+"[tls]\nenabled = true\n")},
		{File: write(t, minimal+"[auth]\nprovider = \"sasl\"\n")},
		{File: write(t, minimal), Environ: []string{"BINDERY_TLS__ENABLED=true"}},
		{File: write(t, minimal), Set: []string{"tls.enabled=true"}},
	} {
		o.Lenient = true
		_, err := Load(o)
		require.ErrorContains(t, err, "is not in this version; remove the setting")
		require.NotContains(t, err.Error(), "did you mean")
	}
	l, err := Load(Options{File: write(t, minimal+"[storagge]\nx = 1\n"), Lenient: true})
	require.NoError(t, err)
	require.Len(t, l.Warnings, 1)
}

func TestLookupOld(t *testing.T) {
	for old, want := range map[string]string{"journalDirectories": "storage.journal_dirs", "httpServerPort": "http.listen", "gcWaitTime": "gc.interval"} {
		found := LookupOld(old)
		require.NotEmpty(t, found, old)
		require.Equal(t, want, found[0].Key)
	}
	require.Empty(t, LookupOld("and"))
	require.Empty(t, LookupOld(""))
	require.Contains(t, Sections(), "metadata")
	require.Equal(t, "run", Sections()[0])
}

func TestDiff(t *testing.T) {
	a, err := Load(Options{File: write(t, minimal)})
	require.NoError(t, err)
	b, err := Load(Options{File: write(t, minimal), Set: []string{"gc.interval=1h", "gc.minor.every=90m"}})
	require.NoError(t, err)
	require.Equal(t, []Difference{{"gc.interval", `"15m"`, `"1h"`}, {"gc.minor.every", `"1h"`, `"1h30m"`}}, Diff(a, b))
}

func TestExplain(t *testing.T) {
	l, err := Load(Options{File: write(t, minimal)})
	require.NoError(t, err)
	s, ok := Lookup("storage.cache.write")
	require.True(t, ok)
	var b strings.Builder
	require.NoError(t, l.Explain(&b, s, l.Resolve(Machine{Memory: 16 << 30, MemorySource: "machine", Cores: 2}, 1)))
	for _, want := range []string{"storage.cache.write", "size with unit", `"auto"`, "3.6GiB", "45 % of storage.memory", "BINDERY_STORAGE__CACHE__WRITE", "dbStorage_writeCacheMaxSizeMb"} {
		require.Contains(t, b.String(), want)
	}
}

func TestApprox(t *testing.T) {
	for want, n := range map[string]Size{"11.8GiB": 12341828 << 10, "1GiB": 1 << 30, "1.5KiB": 1536, "512B": 512, "auto": AutoSize, "2TiB": 2 << 40} {
		require.Equal(t, want, n.Approx())
	}
}

func TestSizes(t *testing.T) {
	for _, tc := range []struct {
		text string
		want Size
	}{{"1B", 1}, {"512KiB", 512 << 10}, {"1.5GiB", 3 << 29}, {"200MB/s", 200e6}, {"2 TiB", 2 << 40}, {"0B", 0}, {"7kB", 7000}} {
		got, err := ParseSize(tc.text)
		require.NoError(t, err, tc.text)
		require.Equal(t, tc.want, got, tc.text)
	}
	for _, bad := range []string{"", "12", "MiB", "-1MiB", "1e40GiB", "NaNMiB", "1 QiB", "12mib"} {
		_, err := ParseSize(bad)
		require.Error(t, err, bad)
	}
	for _, s := range []Size{0, 1, 1023, 1 << 10, 1 << 20, 3 << 29, 5 << 40} {
		back, err := ParseSize(s.String())
		require.NoError(t, err)
		require.Equal(t, s, back)
	}
}

func TestDurations(t *testing.T) {
	for _, tc := range []struct {
		text string
		want time.Duration
	}{{"0", 0}, {"1ms", time.Millisecond}, {"15m", 15 * time.Minute}, {"7d", 168 * time.Hour}, {"1h30m", 90 * time.Minute}} {
		got, err := ParseDuration(tc.text)
		require.NoError(t, err, tc.text)
		require.Equal(t, Duration(tc.want), got)
	}
	for _, bad := range []string{"", "3", "-1s", "1 fortnight", "1e99d"} {
		_, err := ParseDuration(bad)
		require.Error(t, err, bad)
	}
	require.Equal(t, "15m", Duration(15*time.Minute).String())
	require.Equal(t, "168h", Duration(168*time.Hour).String())
	require.Equal(t, "1h0m5s", Duration(time.Hour+5*time.Second).String())
}

func FuzzLoad(f *testing.F) {
	f.Add(minimal)
	f.Add("[storage]\ncache = { write = \"auto\", read = \"1GiB\" }\n")
	f.Add("[gc]\nminor.below = 0.1\n[[gc.major]]\n")
	f.Add("\"gc.rate\" = 1979-05-27T07:32:00Z")
	f.Add("[expert]\nmax_frame = \"\"\n# x")
	f.Fuzz(func(t *testing.T, text string) {
		l := &Loaded{origin: map[string]Origin{}}
		problems, _ := l.applyFile("f", []byte(text), false)
		for _, p := range problems {
			if strings.Contains(p.String(), "\n") && !strings.Contains(text, "\n") {
				t.Fatalf("a problem of several lines: %q", p)
			}
		}
	})
}
