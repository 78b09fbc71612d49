//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestOffloadRun has a policy choose by age, size and custom metadata, first only in words.
func TestOffloadRun(t *testing.T) {
	dir := t.TempDir()
	standalone(t, dir, "--offload-dir", "tier")
	large, data := randomFile(t, dir, 1<<20)
	small := filepath.Join(dir, "small")
	require.NoError(t, os.WriteFile(small, []byte("a few bytes"), 0o600))
	write := func(name, custom string) string {
		return strings.TrimSpace(ok(t, dir, "ledger", "write", "--split", "16KiB", "--custom", custom, name))
	}
	billing, tiny, other := write(large, "team=billing"), write(small, "team=billing"), write(large, "team=other")
	require.Contains(t, ok(t, dir, "ledger", "show", billing), `team = "billing"`)
	policy := []string{"offload", "run", "--after-age", "1ms", "--after-bytes", "1kB", "--match", "team=billing", "--deletion-lag", "0s", "--every", "100ms"}
	require.JSONEq(t, `[{"ledger": `+billing+`, "action": "offload", "payload_bytes": 1048576}]`, ok(t, dir, append(policy, "--dry-run", "--output", "json")...))
	require.Equal(t, []string{"ledger", "action", "payload", "not", "before", billing, "offload", "1.0", "MB"}, strings.Fields(ok(t, dir, append(policy, "--dry-run")...)))
	require.Equal(t, "[]\n", ok(t, dir, "offload", "ls", "--output", "json"), "nothing was moved")
	r := command(t, dir, nil, "offload", "run", "--match", "team=billing")
	require.Equal(t, 2, r.code)
	require.Contains(t, r.complaint(t), "give it too")

	s := start(t, dir, "", policy...)
	require.Eventually(t, func() bool { return strings.Contains(ok(t, dir, "ledger", "ls"), billing+" RELEASED\n") }, startTimeout, 200*time.Millisecond)
	require.Zero(t, s.stop(syscall.SIGTERM))
	require.Contains(t, s.stderr.String(), "ledger offloaded", "what it does is logged")
	require.True(t, ok(t, dir, "ledger", "read", billing) == string(data))
	for _, id := range []string{tiny, other} {
		require.NotContains(t, ok(t, dir, "ledger", "show", id), "tier  ", "the policy does not take it")
	}
}

// TestOffloadTakesOver: a worker is killed while its target keeps it waiting; the next command says whom it waits for, waits, and takes over.
func TestOffloadTakesOver(t *testing.T) {
	dir := t.TempDir()
	standalone(t, dir, "--offload-dir", "tier")
	input, data := randomFile(t, dir, 1<<20)
	id := strings.TrimSpace(ok(t, dir, "ledger", "write", "--split", "16KiB", input))
	silent, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0") // takes connections and never answers
	require.NoError(t, err)
	defer silent.Close()
	targets := filepath.Join(dir, "silent.toml")
	require.NoError(t, os.WriteFile(targets, fmt.Appendf(nil, "[[target]]\nid = \"silent\"\nendpoint = \"http://%s\"\nallow_insecure = true\nbucket = \"ledgers\"\ncredentials = { source = \"env\" }\n", silent.Addr()), 0o600))
	t.Setenv("AWS_ACCESS_KEY_ID", "key")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	first := start(t, dir, "", "offload", "ledger", id, "--targets", targets)
	require.Eventually(t, func() bool { return strings.Contains(ok(t, dir, "offload", "ls"), "UPLOADING") }, startTimeout, 100*time.Millisecond)
	select {
	case <-first.exited:
		t.Fatalf("it did not wait for its target:\n%s", first.stderr)
	default:
	}
	first.kill()
	r := command(t, dir, nil, "offload", "ledger", id)
	require.Equal(t, 0, r.code, r.stderr)
	require.Contains(t, r.stdout, "COMPLETE, 4+2")
	if r.stderr != "" { // the session may have ended before, on a slow machine
		require.Regexp(t, `^ledger `+id+`: worker \S+:`+strconv.Itoa(first.cmd.Process.Pid)+` is at it; waiting up to 25s`, r.stderr)
	}
	require.True(t, ok(t, dir, "offload", "read", id) == string(data))
}

// TestTierAfterAnOlderBackup puts an older backup of the metadata under ledgers that were offloaded, repaired and given up by the bookies
// since: what the store knows nothing of is listed, adopted and found again, and every byte is there.
func TestTierAfterAnOlderBackup(t *testing.T) {
	dir := t.TempDir()
	s := standalone(t, dir, "--offload-dir", "tier")
	input, data := randomFile(t, dir, 2<<20)
	write := func() string { return strings.TrimSpace(ok(t, dir, "ledger", "write", "--split", "16KiB", input)) }
	out := func(ids ...string) { ok(t, dir, append([]string{"offload", "ledger", "--release-now"}, ids...)...) }
	repaired, known := write(), write()
	out(repaired)
	require.Zero(t, s.stop(syscall.SIGTERM), s.stderr)
	metadata, backup := filepath.Join(dir, "bindery-data", "metadata"), filepath.Join(dir, "backup")
	require.NoError(t, os.CopyFS(backup, os.DirFS(metadata)))

	s = standalone(t, dir, "--offload-dir", "tier")
	later := write()
	out(known, later)
	for i := 1; i <= 6; i++ { // in the end nothing is where it was, and nothing is left there
		ok(t, dir, "offload", "repair", repaired, "--drain", fmt.Sprint("t", i))
	}
	ok(t, dir, "offload", "clean", "--grace", "1ms")
	ok(t, dir, "offload", "clean", "--grace", "1ms")
	require.Zero(t, s.stop(syscall.SIGTERM), s.stderr)
	require.NoError(t, os.RemoveAll(metadata))
	require.NoError(t, os.CopyFS(metadata, os.DirFS(backup)))

	standalone(t, dir, "--offload-dir", "tier")
	strays := func() (of map[string]int) {
		var list []struct {
			Ledger int64
			Kind   string
		}
		require.NoError(t, json.Unmarshal([]byte(ok(t, dir, "offload", "orphans", "--delete", "--output", "json")), &list))
		of = map[string]int{}
		for _, x := range list {
			require.Equal(t, "stray", x.Kind)
			of[strconv.FormatInt(x.Ledger, 10)]++
		}
		return of
	}
	found := strays()
	require.Equal(t, 9, found[known], "six shards and three manifests")
	require.Equal(t, 9, found[later])
	require.GreaterOrEqual(t, found[repaired], 6, "what the repair moved")
	require.NotEqual(t, 0, command(t, dir, nil, "offload", "read", repaired).code, "nothing is where the record has it")
	r := command(t, dir, nil, "offload", "adopt", repaired)
	require.Equal(t, 1, r.code)
	require.Contains(t, r.complaint(t), "bindery offload repair "+repaired)
	require.Contains(t, ok(t, dir, "offload", "adopt", known), "adopted; COMPLETE, 4+2", "the backup has the ledger")
	require.Contains(t, ok(t, dir, "offload", "adopt", later), "adopted; RELEASED, 4+2")
	require.Contains(t, ok(t, dir, "offload", "repair", "--all"), "shards that were found where that wrote them: [")
	require.Contains(t, ok(t, dir, "offload", "verify", "--all", "--level", "full"), "3 ledgers looked at, 0 findings")
	for _, id := range []string{repaired, known, later} {
		require.True(t, ok(t, dir, "offload", "read", id) == string(data), id)
		require.True(t, ok(t, dir, "ledger", "read", id) == string(data), id)
	}
	ok(t, dir, "gc", "accept-rollback", "--yes")
	ok(t, dir, "offload", "ledger", known, "--release-now")
	require.True(t, ok(t, dir, "ledger", "read", known) == string(data))
	require.Empty(t, strays())
}

// TestOffload takes a ledger out to six folders and through all that may happen to it there: the bookies give it up, two folders
// are wiped, everything is killed, it is repaired, restored and deleted.
func TestOffload(t *testing.T) {
	dir := t.TempDir()
	s := standalone(t, dir, "--offload-dir", "tier")
	input, data := randomFile(t, dir, 12<<20)
	id := strings.TrimSpace(ok(t, dir, "ledger", "write", "--split", "16KiB", input))
	same := func(args ...string) {
		t.Helper()
		require.True(t, ok(t, dir, args...) == string(data), "%v returned other bytes", args)
	}
	require.Contains(t, ok(t, dir, "offload", "targets", "ls"), "t6")
	require.Equal(t, 6, strings.Count(ok(t, dir, "offload", "targets", "check"), " ok\n"))

	require.Contains(t, ok(t, dir, "offload", "ledger", id), "COMPLETE, 4+2")
	same("offload", "read", id)
	same("ledger", "read", id)
	require.Contains(t, ok(t, dir, "offload", "ledger", id, "--release-now"), "RELEASED")
	require.NotContains(t, ok(t, dir, "ledger", "ls"), "CLOSED", "bookies have nothing any more")
	same("ledger", "read", id)

	s.kill()
	for _, name := range []string{"t2", "t5"} {
		require.NoError(t, os.RemoveAll(filepath.Join(dir, "tier", name)))
	}
	standalone(t, dir, "--offload-dir", "tier")
	same("ledger", "read", id)
	r := command(t, dir, nil, "offload", "verify", id, "--level", "head")
	require.Equal(t, 5, r.code)
	require.Contains(t, r.stdout, "target t2")
	require.Contains(t, r.stdout, "target t5")
	require.Contains(t, ok(t, dir, "offload", "repair", "--all"), "shards repaired: [")
	require.Contains(t, ok(t, dir, "offload", "verify", "--all", "--level", "full"), "0 findings")
	for _, name := range []string{"t1", "t6"} { // two others: redundancy is whole again
		require.NoError(t, os.RemoveAll(filepath.Join(dir, "tier", name)))
	}
	same("ledger", "read", id)

	restored := strings.TrimSpace(ok(t, dir, "offload", "restore", id))
	require.NotEqual(t, id, restored)
	same("ledger", "read", restored)
	ok(t, dir, "ledger", "rm", id, "--yes")
	r = command(t, dir, nil, "ledger", "read", id)
	require.Equal(t, 1, r.code)
	require.Contains(t, r.complaint(t), "no such ledger")
	require.Contains(t, ok(t, dir, "offload", "ls"), "DELETING")
	same("ledger", "read", restored)

	r = command(t, t.TempDir(), nil, "offload", "verify", "--all")
	require.Equal(t, 2, r.code)
	require.Contains(t, r.complaint(t), "no object stores are named")
}
