//go:build interop

package interop

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/binderylog/bindery/internal/freeport"
	"github.com/stretchr/testify/require"
)

// replaced waits until no fragment of a ledger names a bookie.
func replaced(t *testing.T, f *fleet, id int64, bookie string) {
	t.Helper()
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		m, err := f.client.Metadata(ctx, idOf(id))
		return err == nil && !m.Names(bookieOf(bookie))
	}, 90*time.Second, 200*time.Millisecond, "%s is still named by ledger %d", bookie, id)
}

// holderOf returns a bookie that stores the ledger.
func holderOf(t *testing.T, f *fleet, id int64) *member {
	t.Helper()
	m, err := f.client.Metadata(context.Background(), idOf(id))
	require.NoError(t, err)
	for _, b := range f.bookies {
		if slices.Contains(m.Fragments[0].Bookies, bookieOf(b.id)) {
			return b
		}
	}
	t.Fatal("the ledger is on no bookie of the fleet")
	return nil
}

func recoveryStatusOf(t *testing.T, f *fleet) (s struct {
	Enabled bool   `json:"enabled"`
	Auditor string `json:"auditor"`
	Delay   string `json:"lost_bookie_delay"`
}) {
	t.Helper()
	out, err := exec.Command(bindery, "recovery", "status", "--output", "json", "--metadata", f.uri).Output()
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(out, &s))
	return s
}

// sides are the metadata stores with the version of BookKeeper that works in each.
var sides = []struct {
	name    string
	at      func(t testing.TB) metadataStore
	version string
}{
	{"zookeeper", func(t testing.TB) metadataStore { return startZooKeeper(t) }, newBookKeeper},
	{"etcd", func(testing.TB) metadataStore { return etcd{} }, pulsarBookKeeper},
	{"metadata-store-zk", func(t testing.TB) metadataStore { return pulsarZooKeeper{startZooKeeper(t)} }, pulsarBookKeeper},
}

// onEachSide runs a test in every metadata store but those with some names, and notes the outcome; with -short in ZooKeeper only.
func onEachSide(t *testing.T, test func(t *testing.T, at metadataStore, name, version string), but ...string) {
	for _, s := range sides {
		if testing.Short() && s.version != newBookKeeper || slices.Contains(but, s.name) {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			defer func() { note(t, s.name+", BookKeeper "+s.version) }()
			test(t, s.at(t), s.name, s.version)
		})
	}
}

// TestRecoveryUnderJavasShell: Apache's shell sees and steers our auto-recovery: the elected auditor, the switch both ways, the
// delay, whose change makes our auditor look at once.
func TestRecoveryUnderJavasShell(t *testing.T) { onEachSide(t, recoveryUnderJavasShell) }

func recoveryUnderJavasShell(t *testing.T, at metadataStore, name, version string) {
	f := startFleet(t, at, "recovery-"+name, ours, ours, ours, ours, ours)
	c := &goClient{f.client}
	w, err := written(c, plain, 50, size)
	require.NoError(t, err)
	require.NoError(t, w.close())
	says := func(pattern string, args ...string) {
		t.Helper()
		out, err := shell(t, version, f.uri, args...)
		require.NoError(t, err, "%s", out)
		require.Regexp(t, pattern, out)
	}
	auditor := recoveryStatusOf(t, f).Auditor
	require.NotNil(t, f.of(auditor), "%q is the auditor", auditor)
	says(regexp.QuoteMeta(auditor), "whoisauditor")
	out, err := exec.Command(bindery, "recovery", "off", "--metadata", f.uri).CombinedOutput()
	require.NoError(t, err, "%s", out)
	says("(?i)(status|autorecovery) .*disabled", "autorecovery")
	says("", "autorecovery", "-enable")
	require.True(t, recoveryStatusOf(t, f).Enabled)

	b := holderOf(t, f, w.id())
	b.kill()
	says("", "lostbookierecoverydelay", "-set", "1")
	replaced(t, f, w.id(), b.id)
	require.Equal(t, "1s", recoveryStatusOf(t, f).Delay)
	r, err := c.open(w.id(), "", false)
	require.NoError(t, err)
	require.NoError(t, readAll(r, w.id(), 49, size))
	require.NoError(t, r.forget())
}

// TestJavasRecoveryOnOurBookies: Apache's AutoRecovery makes up for a bookie of ours that is lost.
func TestJavasRecoveryOnOurBookies(t *testing.T) { onEachSide(t, javasRecoveryOnOurBookies) }

func javasRecoveryOnOurBookies(t *testing.T, at metadataStore, name, version string) {
	t.Setenv("BINDERY_RECOVERY__ENABLED", "false")
	f := startFleet(t, at, "recovery-java-"+name, ours, ours, ours, ours, ours)
	c := &goClient{f.client}
	w, err := written(c, plain, 50, size)
	require.NoError(t, err)
	require.NoError(t, w.close())
	require.Empty(t, recoveryStatusOf(t, f).Auditor)
	startJavasRecovery(t, f, version)
	auditor(t, f, func(name string) bool { return name != "" })
	b := holderOf(t, f, w.id())
	b.kill()
	replaced(t, f, w.id(), b.id)
	r, err := c.open(w.id(), "", false)
	require.NoError(t, err)
	require.NoError(t, readAll(r, w.id(), 49, size))
	require.NoError(t, r.forget())
}

// startJavasRecovery starts Apache's auditor and worker as a process of their own.
func startJavasRecovery(t *testing.T, f *fleet, version string) *process {
	dir := t.TempDir()
	conf := filepath.Join(dir, "recovery.conf")
	require.NoError(t, os.WriteFile(conf, fmt.Appendf(nil, "metadataServiceUri=%s\nallowLoopback=true\nbookiePort=%d\nadvertisedAddress=127.0.0.1\nlostBookieRecoveryDelay=0\n"+
		"journalDirectory=%s\nledgerDirectories=%s\nhttpServerEnabled=false\n", f.uri, freeport.Test(t), dir, dir), 0o644))
	return start(t, "autorecovery", jvm("256m", []string{bookkeeperJars(t, version)}, "org.apache.bookkeeper.replication.AutoRecoveryMain", "-conf", conf), work)
}

// auditor waits until the elected auditor is as asked for, and returns its name.
func auditor(t *testing.T, f *fleet, ok func(name string) bool) (name string) {
	t.Helper()
	require.Eventually(t, func() bool {
		name = recoveryStatusOf(t, f).Auditor
		return ok(name)
	}, patience, 500*time.Millisecond)
	return name
}

// TestR16MixedAuditors: one candidate of Apache's and one of ours, which has the role alone; each takes over when the other
// one's process dies, and both name the elected one.
func TestR16MixedAuditors(t *testing.T) { onEachSide(t, mixedAuditors) }

func mixedAuditors(t *testing.T, at metadataStore, name, version string) {
	t.Setenv("BINDERY_RECOVERY__ENABLED", "false")
	f := startFleet(t, at, "auditors-"+name, ours, ours, ours, ours)
	node := func() *process {
		cmd := exec.Command(bindery, "run", "--roles", "recovery", "--set", "http.listen=", "--config", f.bookies[0].conf)
		return start(t, "recovery-role", cmd, work)
	}
	first := node()
	own := auditor(t, f, func(name string) bool { return name != "" })
	java := startJavasRecovery(t, f, version)
	time.Sleep(5 * time.Second) // it stands, and waits
	require.Equal(t, own, recoveryStatusOf(t, f).Auditor)
	first.kill()
	theirs := auditor(t, f, func(name string) bool { return name != "" && name != own })
	out, err := shell(t, version, f.uri, "whoisauditor")
	require.NoError(t, err, "%s", out)
	require.Contains(t, out, theirs)
	second := node()
	defer second.kill()
	time.Sleep(2 * time.Second)
	require.Equal(t, theirs, recoveryStatusOf(t, f).Auditor)
	java.kill()
	auditor(t, f, func(name string) bool { return name == own })
}
