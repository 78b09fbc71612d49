//go:build interop

package interop

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/internal/metadata/driver"
)

var (
	bindery string // the binary under test
	work    string // temporary directory of the run
	results table
	quiet   = slog.New(slog.DiscardHandler)
	keep    = os.Getenv("BINDERY_INTEROP_KEEP") != ""
)

func idOf(id int64) ledger.ID            { return ledger.ID(id) }
func bookieOf(id string) ledger.BookieID { return ledger.BookieID(id) }

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (int, error) {
	var err error
	if work, err = os.MkdirTemp("", "bindery-interop-"); err != nil {
		return 1, err
	}
	if !keep {
		defer os.RemoveAll(work)
	} else {
		fmt.Fprintln(os.Stderr, "logs and data stay in", work)
	}
	bindery = os.Getenv("BINDERY_BIN")
	if bindery == "" {
		bindery = filepath.Join(work, "bindery")
		cmd := exec.Command("go", "build", "-o", bindery, "./cmd/bindery")
		cmd.Dir = "../.."
		if out, err := cmd.CombinedOutput(); err != nil {
			return 1, fmt.Errorf("build: %w\n%s", err, out)
		}
	}
	code := m.Run()
	results.print(os.Stdout)
	for _, line := range lines {
		fmt.Println(line)
	}
	if code == 0 {
		if err := goleak.Find(); err != nil {
			return 1, err
		}
	}
	return code, nil
}

// TestInterop runs every pair of clients on every fleet: (a) Java's on our bookies, (b) ours on Apache's, (c) both on fleets
// of both kinds, (d) Apache's shell on ours. With -short only the newer BookKeeper, one fleet of each kind and fewer pairs.
func TestInterop(t *testing.T) {
	z := startZooKeeper(t)
	versions := []string{newBookKeeper, oldBookKeeper}
	if testing.Short() {
		versions = versions[:1]
	}
	programs := pairings(t, z, "", versions)
	for name, formatter := range map[string]string{"long-ours": ours, "long-java": newBookKeeper} {
		t.Run(name, func(t *testing.T) {
			f := startFleet(t, z, name, formatter, ours, ours, ours)
			java, own := clients(t, f, programs[:1])
			stage(t, f, cross(java[1:2], own), scenarios[0], scenarios[5], scenarios[len(scenarios)-1])
		})
	}
	t.Run("ids", func(t *testing.T) { ids64(t, z, "ids", programs) })
}

// TestInteropWithPulsarsDrivers does the same on etcd in the layout of Pulsar's metadata store, with the BookKeeper that comes with
// Pulsar and its drivers, and a part of it with these drivers on ZooKeeper.
func TestInteropWithPulsarsDrivers(t *testing.T) {
	if testing.Short() {
		t.Skip("takes minutes: runs in make interop, which is without -short")
	}
	programs := pairings(t, etcd{}, "etcd-", []string{pulsarBookKeeper})
	t.Run("ids", func(t *testing.T) { ids64(t, etcd{}, "etcd-ids", programs) })
	z := pulsarZooKeeper{startZooKeeper(t)}
	for name, formatter := range map[string]string{"zk-ours": ours, "zk-java": pulsarBookKeeper} {
		t.Run(name, func(t *testing.T) {
			f := startFleet(t, z, name, formatter, ours, ours, pulsarBookKeeper)
			java, own := clients(t, f, programs)
			stage(t, f, cross(java, own), scenarios[0], scenarios[5], scenarios[len(scenarios)-1])
		})
	}
	t.Run("zk-ids", func(t *testing.T) { ids64(t, z, "zk-ids", programs) })
}

// pairings runs the pairs of clients on fleets of ours, of Apache's and of both, whose names begin with prefix. It returns the
// Java programs that it started, one for each version.
func pairings(t *testing.T, at metadataStore, prefix string, versions []string) (programs []*javaProgram) {
	for _, v := range versions {
		programs = append(programs, startJava(t, v))
	}
	newest, oldest := versions[0], versions[len(versions)-1]
	t.Run("a", func(t *testing.T) {
		f := startFleet(t, at, prefix+"bindery", ours, ours, ours, ours, ours)
		java, own := clients(t, f, programs)
		stage(t, f, append(same(java), cross(java, own)...), scenarios...)
		stage(t, f, append(same(append(java, own)), cross(java[:2], own)...), faults...)
		t.Run("shell", func(t *testing.T) { shells(t, f, versions) })
	})
	for _, v := range versions {
		t.Run("b", func(t *testing.T) {
			f := startFleet(t, at, prefix+"apache-"+v, v, v, v, v)
			java, own := clients(t, f, programs)
			stage(t, f, append(same([]client{own}), cross(java, own)...), scenarios...)
			stage(t, f, same(java[:2]), scenarios...) // what Apache's client does with Apache's bookies
		})
	}
	t.Run("c", func(t *testing.T) {
		f := startFleet(t, at, prefix+"mixed", newest, ours, ours, newest, oldest)
		java, own := clients(t, f, programs)
		pairs := append(same(append(java[:2:2], own)), cross(java[:2], own)...)
		stage(t, f, pairs, scenarios...)
		if testing.Short() {
			pairs = pairs[2:5]
		}
		stage(t, f, pairs, faults...)
	})
	return programs
}

// ids64 lets both clients draw ids beyond 31 bits from one generator, and read each other's ledgers under them.
func ids64(t *testing.T, at metadataStore, name string, programs []*javaProgram) {
	f := startFleet(t, at, name, ours, ours, ours, ours)
	store, root, err := driver.Open(t.Context(), f.uri, driver.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, store.Close()) }()
	_, err = store.Put(t.Context(), root+"/idgen-long", nil, metadata.Absent)
	require.NoError(t, err)
	java, own := clients(t, f, programs[:1])
	seen := map[int64]bool{}
	for _, c := range append(java, own, own, java[0]) {
		w, err := written(c, plain, 3, size)
		require.NoError(t, err)
		require.NoError(t, w.close())
		require.GreaterOrEqual(t, w.id(), int64(1)<<32)
		require.Less(t, w.id(), int64(2)<<32)
		require.False(t, seen[w.id()], "id %d drawn twice", w.id())
		seen[w.id()] = true
		for _, r := range append(java, own) {
			require.NoError(t, sealed(r, w.id(), plain.digest, false, 2, size))
		}
	}
	results.set(name+"|all|all", "ids of 63 bits", "ok")
}

// stage runs scenarios for each pair of clients.
func stage(t *testing.T, f *fleet, pairs [][2]client, list ...scenario) {
	for _, p := range pairs {
		t.Run(fmt.Sprintf("%s to %s", p[0].name(), p[1].name()), func(t *testing.T) { all(t, f, p[0], p[1], list) })
	}
}

// clients connects to a fleet: each Java program in both protocols, and ours.
func clients(t *testing.T, f *fleet, programs []*javaProgram) (java []client, own client) {
	for _, j := range programs {
		for _, proto := range []string{"v2", "v3"} {
			java = append(java, connectJava(t, j, f, proto))
		}
	}
	return java, &goClient{f.client}
}

func same(cs []client) (pairs [][2]client) {
	for _, c := range cs {
		pairs = append(pairs, [2]client{c, c})
	}
	return pairs
}

func cross(cs []client, own client) (pairs [][2]client) {
	for _, c := range cs {
		pairs = append(pairs, [2]client{c, own}, [2]client{own, c})
	}
	return pairs
}

// all runs scenarios for one pair and notes the outcomes.
func all(t *testing.T, f *fleet, w, r client, list []scenario) {
	row := f.name + "|" + w.name() + "|" + r.name()
	for _, s := range list {
		outcome := "ok"
		switch err := s.run(f, w, r); {
		case errors.Is(err, errUnsupported):
			outcome = "n/a"
		case err != nil:
			outcome = "FAIL"
			t.Errorf("%s: %v", s.name, err)
		}
		results.set(row, s.name, outcome)
		t.Logf("%-4s %s", outcome, s.name)
	}
}
