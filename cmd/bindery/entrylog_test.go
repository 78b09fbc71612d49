package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/bookie/index"
	"github.com/binderylog/bindery/entrylog"
	"github.com/binderylog/bindery/internal/vfs"
)

// ledgerDirFixture is a ledger directory with two sealed logs and their index.
func ledgerDirFixture(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	current := filepath.Join(dir, "current")
	require.NoError(t, os.MkdirAll(current, 0o755))
	s, _, err := entrylog.Open(vfs.OS(), current, entrylog.Options{BufferedWrites: true, BufferSize: 64 << 10, PreallocateSize: 64 << 10})
	require.NoError(t, err)
	for log := range int64(2) {
		var b entrylog.RunBuilder
		for ledger := int64(10); ledger <= 11; ledger++ {
			for e := range int64(5) {
				body := make([]byte, 100)
				binary.BigEndian.PutUint64(body, uint64(ledger))
				binary.BigEndian.PutUint64(body[8:], uint64(log*5+e))
				binary.BigEndian.PutUint64(body[16:], uint64(log*5+e-1))
				loc, err := s.Append(body)
				require.NoError(t, err)
				b.Add(ledger, log*5+e, loc)
			}
		}
		require.NoError(t, s.Checkpoint(b.Runs(), []entrylog.LedgerState{{Ledger: 10, Data: []byte("fenced")}}))
		require.NoError(t, s.Roll())
	}
	require.NoError(t, s.Close())
	s, _, err = entrylog.Open(vfs.OS(), current, entrylog.Options{ReadOnly: true})
	require.NoError(t, err)
	x, err := index.OpenBolt(filepath.Join(current, index.FileName), index.Options{})
	require.NoError(t, err)
	_, err = index.Rebuild(context.Background(), s, x, nil)
	require.NoError(t, err)
	require.NoError(t, x.PutMeta(index.MetaValue{Key: "tombstones", Value: []byte("3-7")}))
	require.NoError(t, x.Close())
	require.NoError(t, s.Close())
	return dir
}

// runOffline runs a command of the offline tools.
func runOffline(t *testing.T, c *cobra.Command, args ...string) (stdout, message string, code int) {
	t.Helper()
	var out, diag bytes.Buffer
	c.SilenceErrors, c.SilenceUsage = true, true
	c.SetArgs(args)
	c.SetOut(&out)
	c.SetErr(&diag)
	if err := c.ExecuteContext(t.Context()); err != nil {
		return out.String(), err.Error(), exitCode(err)
	}
	return out.String(), "", exitOK
}

func flipByte(t *testing.T, name string, off int64) {
	t.Helper()
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	require.NoError(t, err)
	var b [1]byte
	_, err = f.ReadAt(b[:], off)
	require.NoError(t, err)
	b[0] ^= 0x10
	_, err = f.WriteAt(b[:], off)
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

func TestEntrylogCommands(t *testing.T) {
	dir := ledgerDirFixture(t)
	out, _, code := runOffline(t, newEntrylogCommand(), "ls", dir, "--output", "json")
	require.Equal(t, exitOK, code)
	var logs []map[string]any
	require.NoError(t, json.Unmarshal([]byte(out), &logs))
	require.Len(t, logs, 2)
	require.Equal(t, "1", logs[0]["log"])
	require.Equal(t, "sealed", logs[0]["state"])

	out, _, code = runOffline(t, newEntrylogCommand(), "info", dir, "2.log", "--output", "json")
	require.Equal(t, exitOK, code)
	var info map[string]any
	require.NoError(t, json.Unmarshal([]byte(out), &info))
	require.Equal(t, float64(10), info["entries"])
	require.Equal(t, float64(1), info["ledger_states"])
	require.Equal(t, "footer", info["source"])
	require.Equal(t, []any{map[string]any{"ledger": 10.0, "bytes": 540.0}, map[string]any{"ledger": 11.0, "bytes": 540.0}}, info["ledgers"])

	out, _, code = runOffline(t, newEntrylogCommand(), "dump", dir, "1", "--ledger", "11", "--output", "json", "--body")
	require.Equal(t, exitOK, code)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	require.Len(t, lines, 5)
	var entry map[string]any
	require.NoError(t, json.Unmarshal([]byte(lines[4]), &entry))
	require.Equal(t, 4.0, entry["entry"])
	require.Equal(t, 3.0, entry["lac"])
	require.Equal(t, 100.0, entry["size_bytes"])
	require.Len(t, entry["body_hex"], 200)

	out, _, code = runOffline(t, newEntrylogCommand(), "verify", dir)
	require.Equal(t, exitOK, code, out)
	require.Equal(t, 2, strings.Count(out, "ok"))

	flipByte(t, filepath.Join(dir, "current", "1.log"), 4096+3*108+50)
	out, message, code := runOffline(t, newEntrylogCommand(), "verify", dir)
	require.Equal(t, exitFindings, code)
	require.Contains(t, message, "1 findings in 2 entry logs")
	require.Contains(t, out, "ledger 10, entry 3")
	require.Contains(t, out, "offset 4420")
	out, _, code = runOffline(t, newEntrylogCommand(), "dump", dir, "1")
	require.Equal(t, exitFindings, code)
	require.Equal(t, 10, strings.Count(out, "\n"))
	require.Equal(t, 1, strings.Count(out, "DAMAGED"))
}

func TestEntrylogRefusesRunningBookieAndBadInput(t *testing.T) {
	dir := ledgerDirFixture(t)
	lock, err := vfs.OS().Lock(filepath.Join(dir, "current", "LOCK"))
	require.NoError(t, err)
	for _, c := range []struct {
		cmd  *cobra.Command
		args []string
	}{
		{newEntrylogCommand(), []string{"ls", dir}},
		{newEntrylogCommand(), []string{"verify", dir}},
		{newIndexCommand(), []string{"stats", dir}},
		{newIndexCommand(), []string{"rebuild", dir}},
	} {
		_, message, code := runOffline(t, c.cmd, c.args...)
		require.Equal(t, exitRefused, code)
		require.Contains(t, message, "in use by a running bookie")
	}
	require.NoError(t, lock.Close())
	_, message, code := runOffline(t, newEntrylogCommand(), "ls", filepath.Join(dir, "missing"))
	require.Equal(t, exitFailed, code)
	require.Contains(t, message, "is not a ledger directory")
	_, _, code = runOffline(t, newEntrylogCommand(), "info", dir, "zz")
	require.Equal(t, exitUsage, code)
	_, message, code = runOffline(t, newEntrylogCommand(), "info", dir, "77")
	require.Equal(t, exitFailed, code)
	require.Contains(t, message, "no such entry log")
}

func TestIndexCommands(t *testing.T) {
	dir := ledgerDirFixture(t)
	path := filepath.Join(dir, "current", index.FileName)
	out, _, code := runOffline(t, newIndexCommand(), "stats", dir, "--output", "json")
	require.Equal(t, exitOK, code)
	var st map[string]any
	require.NoError(t, json.Unmarshal([]byte(out), &st))
	require.Equal(t, 20.0, st["entries"])
	require.Equal(t, 2.0, st["ledgers"])

	out, message, code := runOffline(t, newIndexCommand(), "verify", dir, "--read")
	require.Equal(t, exitOK, code, message)
	require.Contains(t, out, "compared 20 entries with 2 entry logs")

	// Damage is found, rebuilding mends it; the caller's values come from the old index while that can be read.
	out, message, code = runOffline(t, newIndexCommand(), "rebuild", dir, "--output", "json")
	require.Equal(t, exitOK, code, message)
	var re map[string]any
	require.NoError(t, json.Unmarshal([]byte(out), &re))
	require.Equal(t, 20.0, re["entries"])
	require.Equal(t, []any{"tombstones"}, re["kept_values"])
	require.Equal(t, false, re["suspect"])
	_, err := os.Stat(path + ".old")
	require.NoError(t, err)

	require.NoError(t, os.Truncate(path, 0))
	_, message, code = runOffline(t, newIndexCommand(), "verify", dir)
	require.Equal(t, exitFindings, code)
	require.Contains(t, message, "bindery index rebuild")
	_, _, code = runOffline(t, newIndexCommand(), "rebuild", dir, "--dry-run")
	require.Equal(t, exitFindings, code)
	size, err := os.Stat(path)
	require.NoError(t, err)
	require.Zero(t, size.Size(), "a dry run changes nothing")
	out, message, code = runOffline(t, newIndexCommand(), "rebuild", dir)
	require.Equal(t, exitFindings, code)
	require.Contains(t, message, "fenced and in limbo")
	require.Contains(t, out, "20 entries of 2 ledgers")
	out, message, code = runOffline(t, newIndexCommand(), "verify", dir)
	require.Equal(t, exitOK, code, message)
	require.Contains(t, out, "compared 20 entries")
}

func TestIndexVerifyFindsMissingAndMisplacedEntries(t *testing.T) {
	dir := ledgerDirFixture(t)
	path := filepath.Join(dir, "current", index.FileName)
	x, err := index.OpenBolt(path, index.Options{})
	require.NoError(t, err)
	loc, err := x.Locate(10, 2)
	require.NoError(t, err)
	wrong := loc
	wrong.Offset += 108 // the next entry's record
	n, err := x.Relocate([]index.Move{{Ledger: 10, Entry: 2, Old: loc, New: wrong}})
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.NoError(t, x.Close())
	_, _, code := runOffline(t, newIndexCommand(), "verify", dir)
	require.Equal(t, exitOK, code, "without reading, nothing contradicts")
	out, _, code := runOffline(t, newIndexCommand(), "verify", dir, "--read")
	require.Equal(t, exitFindings, code)
	require.Contains(t, out, "ledger 10, entry 2: at 1@4420+100 lies ledger 10, entry 3")
	require.NoError(t, os.Remove(filepath.Join(dir, "current", "2.log")))
	out, _, code = runOffline(t, newIndexCommand(), "verify", dir)
	require.Equal(t, exitFindings, code)
	require.Contains(t, out, "no such entry log")
}
