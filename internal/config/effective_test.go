package config

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func load(t *testing.T, set ...string) *Loaded {
	t.Helper()
	l, err := Load(Options{Set: append([]string{"metadata.uri=etcd://h:1/ledgers"}, set...)})
	require.NoError(t, err)
	return l
}

func TestResolveAuto(t *testing.T) {
	e := load(t).Resolve(Machine{Memory: 32 << 30, MemorySource: "machine", Cores: 8}, 1)
	require.EqualValues(t, 16<<30, e.Memory)
	require.EqualValues(t, int64(16<<30)/100*45, e.WriteCache)
	require.EqualValues(t, int64(16<<30)/100*35, e.ReadCache)
	require.EqualValues(t, int64(16<<30)/10, e.InFlight)
	require.Equal(t, e.Memory, e.WriteCache+e.InFlight+e.GoMemLimit, "nothing of the budget is counted twice or forgotten")
	require.Equal(t, 10, e.GoMaxProcs, "cores and journal groups in flight")
}

func TestResolveSmallBudgetKeepsTheHeapAlive(t *testing.T) {
	for _, roles := range []string{"bookie", "bookie,metadata"} {
		for _, bookies := range []int{1, 3} {
			l := load(t, "storage.memory=256MiB", "run.roles="+roles)
			e := l.Resolve(Machine{Memory: 8 << 30, Cores: 2}, bookies)
			require.LessOrEqual(t, e.WriteCache+e.InFlight+e.GoMemLimit, int64(256<<20)+int64(bookies)*(5<<20), "%s %d", roles, bookies)
			require.GreaterOrEqual(t, e.GoMemLimit-e.ReadCache, int64(32<<20)*int64(bookies), "the read cache is on the heap")
			require.GreaterOrEqual(t, e.WriteCache, int64(4<<20)*int64(bookies))
		}
	}
}

func TestResolveExplicit(t *testing.T) {
	e := load(t, "storage.memory=1GiB", "storage.cache.write=600MiB", "limits.in_flight=64MiB", "storage.journal_dirs=/a,/b", "expert.groups_in_flight=3").
		Resolve(Machine{Memory: 4 << 30, Cores: 2}, 1)
	require.EqualValues(t, 600<<20, e.WriteCache)
	require.EqualValues(t, 64<<20, e.InFlight)
	require.Less(t, e.ReadCache, int64(1<<30)-600<<20-64<<20)
	require.Equal(t, 8, e.GoMaxProcs)
}

func TestShare(t *testing.T) {
	e := load(t, "storage.memory=4GiB").Resolve(Machine{Memory: 8 << 30, Cores: 2}, 3)
	s := e.Share(3)
	require.Equal(t, e.WriteCache/3, s.WriteCache)
	require.Equal(t, e.GoMemLimit, s.GoMemLimit, "the heap is one for the process")
	require.Equal(t, int64(16<<20), load(t, "storage.memory=256MiB").Resolve(Machine{Memory: 8 << 30}, 3).Share(3).InFlight)
}

func TestMachineMemory(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "meminfo")
	require.NoError(t, os.WriteFile(name, []byte("MemTotal:       24683656 kB\nMemFree: 1 kB\n"), 0o600))
	require.EqualValues(t, 24683656*1024, machineMemory(name))
	require.Zero(t, machineMemory(filepath.Join(dir, "none")))
	require.NoError(t, os.WriteFile(name, []byte("MemTotal: many kB\n"), 0o600))
	require.Zero(t, machineMemory(name))
}

func TestGroupMemory(t *testing.T) {
	dir := t.TempDir()
	self := filepath.Join(dir, "self")
	put := func(name, text string) {
		t.Helper()
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	put("self", "0::/system.slice/bookie.service\n")
	put("system.slice/memory.max", "8589934592\n")
	put("system.slice/bookie.service/memory.max", "max\n")
	require.EqualValues(t, 8<<30, groupMemory(self, dir), "a limit of a parent counts")
	put("system.slice/bookie.service/memory.max", "4294967296\n")
	require.EqualValues(t, 4<<30, groupMemory(self, dir))

	put("self", "5:cpu:/x\n4:memory:/x\n")
	put("memory/x/memory.limit_in_bytes", "1073741824\n")
	put("memory/memory.limit_in_bytes", "9223372036854771712\n")
	require.EqualValues(t, 1<<30, groupMemory(self, dir))
	require.Zero(t, groupMemory(filepath.Join(dir, "none"), dir))
}

// TestResolveWithoutBookies: a process that runs only metadata has no caches to pay for.
func TestResolveWithoutBookies(t *testing.T) {
	l, err := Load(Options{Set: []string{"run.roles=metadata", "storage.memory=1GiB"}})
	require.NoError(t, err)
	e := l.Resolve(Machine{Memory: 8 << 30, Cores: 4}, 0)
	require.Zero(t, e.WriteCache+e.ReadCache+e.InFlight)
	require.EqualValues(t, 1<<30, e.GoMemLimit)
	require.Equal(t, 4, e.GoMaxProcs)
}
