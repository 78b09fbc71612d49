package bookie

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/vfs/memfs"
	"github.com/binderylog/bindery/internal/wire"
)

// Several journals and ledger directories: ledgers spread over them, and all come back, in any order of the directories.
func TestSeveralDirectories(t *testing.T) {
	fs := memfs.New("/j1/current", "/j2/current", "/j3/current", "/l1/current", "/l2/current")
	mod := func(journals, ledgers []string) func(*Options) {
		return func(o *Options) { o.JournalDirs, o.LedgerDirs = journals, ledgers }
	}
	b := startBookie(t, bookieConfig{fs: fs, mod: mod([]string{"/j1", "/j2", "/j3"}, []string{"/l1", "/l2"})})
	c := b.dial()
	for round := range int64(20) {
		var out []byte
		for l := range int64(12) {
			out = append(out, encode(t, addReq(wire.V2, l, round, round-1, "x"))...)
		}
		c.write(out)
		for range 12 {
			require.Equal(t, wire.OK, c.recv(wire.V2).Code)
		}
	}
	for i, j := range b.eng.journals {
		require.Positive(t, j.Stats().Records, "journal %d", i)
	}
	require.Equal(t, wire.OK, c.fence(wire.V2, 4, keyK).Code)
	check := func(b *testBookie) {
		c := b.dial()
		for l := range int64(12) {
			for e := range int64(20) {
				require.Equal(t, body(l, e, e-1, "x"), c.read(wire.V2, l, e).Body)
			}
		}
		require.Equal(t, wire.Fenced, c.do(addReq(wire.V2, 4, 20, 19, "late")).Code)
	}
	check(b)
	b = startBookie(t, bookieConfig{fs: b.crash(), mod: mod([]string{"/j1", "/j2", "/j3"}, []string{"/l2", "/l1"})})
	check(b)
	b = b.restart(bookieConfig{mod: mod([]string{"/j1", "/j2", "/j3"}, []string{"/l1", "/l2"})})
	check(b)
}

// With durability off entries are answered from memory, but fences, keys and explicit LACs are as durable as ever.
func TestDurabilityOff(t *testing.T) {
	b := startBookie(t, bookieConfig{mod: func(o *Options) { o.Durability = DurabilityOff }})
	c := b.dial()
	c.add(1, 0, "x")
	require.Equal(t, body(1, 0, -1, "x"), c.read(wire.V2, 1, 0).Body)
	require.Equal(t, wire.OK, c.fence(wire.V2, 1, keyK).Code)
	require.Equal(t, wire.OK, b.dial().do(writeLAC(2, 4)).Code)
	require.Equal(t, int64(0), b.srv.addsInProgress.Load())
	b = startBookie(t, bookieConfig{fs: b.crash(), mod: func(o *Options) { o.Durability = DurabilityOff }})
	require.Equal(t, wire.Fenced, b.dial().do(addReq(wire.V2, 1, 1, 0, "late")).Code)
	require.Equal(t, crc.SealLAC(nil, 2, 4), b.dial().do(wire.Request{Proto: wire.V3, Op: wire.OpReadLAC, Ledger: 2}).LACBody)
	c = b.dial()
	c.add(3, 0, "kept by a clean stop")
	b = b.restart(bookieConfig{mod: func(o *Options) { o.Durability = DurabilityOff }})
	require.Equal(t, wire.OK, b.dial().read(wire.V2, 3, 0).Code)
}
