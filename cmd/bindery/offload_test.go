package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/vfs"
	"github.com/binderylog/bindery/offload"
	"github.com/binderylog/bindery/offload/objstore"
	"github.com/binderylog/bindery/offload/objstore/dir"
)

// TestOffloadRoleOfARunningProcess has a process take a ledger out, encrypted, by its policy, and looks at what it shows of that.
func TestOffloadRoleOfARunningProcess(t *testing.T) {
	t.Chdir(t.TempDir())
	r := newRunning(t, anyDisk)
	r.start()
	input := filepath.Join(r.dir, "input")
	data := bytes.Repeat([]byte("a line that everybody may know by heart\n"), 8000)
	require.NoError(t, os.WriteFile(input, data, 0o600))
	id := strings.TrimSpace(succeeds(t, "ledger", "write", "--ensemble", "1", "--split", "4KiB", "--custom", "team=billing", "--metadata", r.uri, input))
	other := strings.TrimSpace(succeeds(t, "ledger", "write", "--ensemble", "1", "--split", "4KiB", "--custom", "team=billing", "--custom", "bindery.tier=keep", "--metadata", r.uri, input))
	n, err := parseLedgerID(other) // the bookies keep it, its owner says
	require.NoError(t, err)
	unmatched := strings.TrimSpace(succeeds(t, "ledger", "write", "--ensemble", "1", "--custom", "team=other", "--metadata", r.uri, input))
	require.Zero(t, r.stop())

	targets, keys := filepath.Join(r.dir, "targets.toml"), filepath.Join(r.dir, "keys")
	var list strings.Builder
	for i := 1; i <= 3; i++ {
		fmt.Fprintf(&list, "[[target]]\nid = \"t%d\"\ndir = %q\ncreate = true\n", i, filepath.Join(r.dir, "tier", fmt.Sprint("t", i)))
	}
	require.NoError(t, os.WriteFile(targets, []byte(list.String()), 0o600))
	require.NoError(t, os.WriteFile(keys, []byte("k1 = "+base64.StdEncoding.EncodeToString(make([]byte, 32))+"\n"), 0o600))
	section := fmt.Sprintf("[run]\nroles = [\"bookie\", \"offload\"]\n[offload]\ntargets = %q\ndir = %q\nafter_age = \"1ms\"\nmatch = [\"team=billing\"]\ndeletion_lag = \"0s\"\ncompression = \"none\"\nencryption = \"aes-256-gcm\"\n", targets, filepath.Join(r.dir, "o"))
	r.write(anyDisk + section + fmt.Sprintf("key_source = %q\n", "file:"+filepath.Join(r.dir, "absent")))
	code, _, errs := cli("run", "--config", r.conf)
	require.Equal(t, 1, code, errs)
	require.Contains(t, errs, "offload keys from file "+filepath.Join(r.dir, "absent"))

	r.write(anyDisk + section + fmt.Sprintf("key_source = %q\n", "file:"+keys))
	r.start()
	require.Eventually(t, func() bool {
		return strings.Contains(succeeds(t, "ledger", "ls", "--metadata", r.uri), id+" RELEASED\n")
	}, time.Minute, 50*time.Millisecond, "%s", r.logs)
	require.Eventually(t, func() bool {
		return strings.Contains(succeeds(t, "ledger", "ls", "--long", "--metadata", r.uri), "COMPLETE")
	}, time.Minute, 50*time.Millisecond, "%s", r.logs)

	shown := succeeds(t, "ledger", "show", unmatched, "--metadata", r.uri)
	require.Contains(t, shown, "custom     team = \"other\"\n")
	require.Contains(t, shown, "custom     bindery.tier = \"release\"\n", "what the client adds")
	require.NotContains(t, shown, "tier       ", "the policy does not match it")
	succeeds(t, "ledger", "rm", unmatched, "--yes", "--metadata", r.uri)
	t.Run("ledger ls and show", func(t *testing.T) {
		require.Equal(t, id+" RELEASED\n"+other+"\n", succeeds(t, "ledger", "ls", "--metadata", r.uri), "the other one's owner keeps it on the bookies")
		require.JSONEq(t, fmt.Sprintf("[%s, %s]", id, other), succeeds(t, "ledger", "ls", "--output", "json", "--metadata", r.uri))
		var rows []ledgerJSON
		require.NoError(t, json.Unmarshal([]byte(succeeds(t, "ledger", "ls", "--long", "--output", "json", "--metadata", r.uri)), &rows))
		require.Len(t, rows, 2)
		require.Equal(t, []string{"RELEASED", "COMPLETE"}, []string{rows[0].Tier, rows[1].Tier})
		require.EqualValues(t, len(data), *rows[0].LengthBytes)
		require.Contains(t, succeeds(t, "ledger", "show", id, "--metadata", r.uri), "tier       RELEASED\n")
		require.Contains(t, succeeds(t, "ledger", "show", other, "--metadata", r.uri), "tier       COMPLETE\n")
	})
	t.Run("keys", func(t *testing.T) {
		require.NoError(t, filepath.WalkDir(filepath.Join(r.dir, "tier"), func(name string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				b, err := os.ReadFile(name)
				require.NoError(t, err)
				require.NotContains(t, string(b), "everybody may know", name)
			}
			return err
		}))
		t.Setenv("BINDERY_OFFLOAD__TARGETS", targets)
		fails(t, exitFailed, `the ledger is encrypted; set the key source that it was written with (key id "k1")`, "ledger", "read", id, "--metadata", r.uri)
		fails(t, exitUsage, "a key itself never stands there", "offload", "read", id, "--metadata", r.uri, "--key-source", "secret")
		t.Setenv("BINDERY_OFFLOAD__KEY_SOURCE", "file:"+keys)
		require.Equal(t, string(data), succeeds(t, "ledger", "read", id, "--metadata", r.uri))
		require.Contains(t, succeeds(t, "offload", "ls", "--key-id", "k1", "--output", "json", "--metadata", r.uri), `"key_id": "k1"`)
		require.Contains(t, succeeds(t, "offload", "verify", "--all", "--against-bookies", "--key-id", "k1", "--metadata", r.uri), "2 ledgers looked at, 0 findings")
		fails(t, exitRefused, `is not encrypted under key "k2"`, "offload", "verify", id, "--key-id", "k2", "--metadata", r.uri)
	})
	t.Run("metrics and data", func(t *testing.T) {
		text := body(t, r.admin, "/metrics")
		require.Contains(t, text, "bindery_offload_ledgers_committed_total 2\n")
		require.Contains(t, text, "bindery_offload_ledgers_released_total 1\n")
		require.Contains(t, text, `bindery_offload_requests_total{target="t1",op="put",class="ok"}`)
		require.Contains(t, text, "bindery_offload_degraded_reads_total 0\n")
		require.Contains(t, text, `bindery_offload_ledgers_under_way{stage="uploading"} 0`)
		var s offloadStatus
		require.NoError(t, json.Unmarshal([]byte(body(t, r.admin, "/api/v2/offload")), &s))
		require.Equal(t, "2+1", s.Geometry)
		require.GreaterOrEqual(t, s.Moved.Raw, uint64(2*len(data)))
		require.Less(t, s.Moved.Raw, uint64(2*len(data)+100_000), "digests and nothing else beside the payloads")
		require.Len(t, s.Targets, 3)
		require.Positive(t, s.Targets[0].Requests["put"]["ok"])
		require.Positive(t, s.Targets[0].Sent)
		require.Len(t, s.Ledgers, 2)
		require.Equal(t, "RELEASED", s.Ledgers[0].State)
		require.True(t, s.Ledgers[0].Encrypted)
		require.Equal(t, 1, *s.Ledgers[0].Redundancy)
		require.NotNil(t, s.Ledgers[0].ScrubAge)
		require.Nil(t, s.Next)
		require.NoError(t, json.Unmarshal([]byte(body(t, r.admin, "/api/v2/offload?limit=1")), &s))
		require.Len(t, s.Ledgers, 1)
		require.Equal(t, id, fmt.Sprint(*s.Next))
	})
	require.Zero(t, r.stop())
	r.start()
	require.Eventually(t, func() bool {
		text := body(t, r.admin, "/metrics")
		return strings.Contains(text, "bindery_offload_ledgers{state=\"RELEASED\"} 1\n") && strings.Contains(text, "bindery_offload_ledgers_by_redundancy{left=\"1\"} 2\n")
	}, time.Minute, 50*time.Millisecond, "%s", r.logs)
	t.Setenv("BINDERY_METADATA__URI", r.uri)
	t.Setenv("BINDERY_OFFLOAD__TARGETS", targets)
	t.Setenv("BINDERY_OFFLOAD__KEY_SOURCE", "file:"+keys)
	t.Run("a slip of the pen is no news", func(t *testing.T) {
		fails(t, exitUsage, `no target "t9" is configured, and no ledger has anything there; configured are: t1, t2, t3`, "offload", "repair", "--all", "--drain", "t9")
		fails(t, exitUsage, `no target "t9" is configured`, "offload", "ls", "--target", "t9")
		fails(t, exitUsage, `--state "released" is none of UPLOADING, COMPLETE, RELEASED, DELETING, damaged`, "offload", "ls", "--state", "released")
		fails(t, exitFailed, "no target of this id is configured", "offload", "orphans", "--target", "t9")
		fails(t, exitUsage, "--to-file has no name", "offload", "restore", id, "--to-file", "")
		fails(t, exitUsage, "is negative", "offload", "scrub", "--older", "-1s")
		for _, verb := range []string{"verify", "repair"} {
			fails(t, exitUsage, "ID is missing: give ledger ids, or --all (usage: bindery offload "+verb+" ID...|--all [flags])", "offload", verb)
			fails(t, exitUsage, `"`+id+`" and --all: give ledger ids, or --all (usage: `, "offload", verb, id, "--all")
		}
		require.JSONEq(t, "[]", succeeds(t, "offload", "orphans", "--output", "json"))
		require.Contains(t, succeeds(t, "offload", "targets", "ls", "--output", "json"), `"target": "t1"`)
		require.Contains(t, succeeds(t, "offload", "targets", "ls"), "dir   "+filepath.Join(r.dir, "tier", "t1")+"\n")
		_, _, errs := cli("offload", "ledger", other, "--geometry", "2+2")
		require.Equal(t, "warning: geometry 2+2: 4 shards in 3 domains put up to 2 in one: only 1 of the domains may be lost instead of 2, which take 4 domains\n", errs)
	})
	t.Run("without targets", func(t *testing.T) {
		t.Setenv("BINDERY_OFFLOAD__TARGETS", "")
		require.Contains(t, succeeds(t, "offload", "ls"), "RELEASED")
		fails(t, exitUsage, `no target "t9" is configured, and no ledger has anything there; configured are: none`, "offload", "ls", "--target", "t9")
		fails(t, exitUsage, "no object stores are named", "offload", "verify", id)
		fails(t, exitFailed, "ledger "+id+": offloaded: only the object stores have the ledger, and none is named; set BINDERY_OFFLOAD__TARGETS", "ledger", "read", id)
	})
	t.Run("what could not be looked at is said", func(t *testing.T) {
		code, out, _ := cli("offload", "verify", id, "999", "--output", "json")
		require.Equal(t, exitPartial, code)
		require.JSONEq(t, `{"ledgers": 1, "findings": [], "failed": ["ledger 999: offload: the ledger is not in the tier"]}`, out)
	})
	t.Run("only what is there is read", func(t *testing.T) {
		fails(t, exitUsage, "entries 5 to 3 are no range", "offload", "read", id, "5", "3")
		fails(t, exitFailed, "entry 999999 is beyond the last one, 78", "offload", "read", id, "999999")
		fails(t, exitFailed, "the last entry is 78; entries 70 to 80 are not all there", "offload", "read", id, "70", "80")
		require.Equal(t, string(data[77*4096:]), succeeds(t, "offload", "read", id, "77", "78"))
	})
	t.Run("nothing looked at is no success", func(t *testing.T) {
		code, out, errs := cli("offload", "verify", "999")
		require.Equal(t, exitFailed, code)
		require.Equal(t, "no ledger could be looked at, 1 failed\n", out)
		require.Equal(t, "ledger 999: offload: the ledger is not in the tier\n", errs)
	})
	t.Run("orphans", func(t *testing.T) {
		released, err := parseLedgerID(id)
		require.NoError(t, err)
		records := offload.NewRecords(r.views)
		_, v, err := records.Read(t.Context(), released)
		require.NoError(t, err)
		require.NoError(t, records.Remove(t.Context(), released, v))
		s, err := dir.Open(vfs.OS(), filepath.Join(r.dir, "tier", "t2"), dir.Options{})
		require.NoError(t, err)
		_, err = s.Put(t.Context(), offload.ShardName(offload.AttemptID{9}, 77, 0, 0), objstore.NewBody([]byte("left")), objstore.PutOptions{})
		require.NoError(t, err)
		code, out, errs := cli("offload", "orphans", "--delete", "--output", "json")
		require.Zero(t, code, errs)
		require.Equal(t, "1 object not deleted: younger than a week\n", errs)
		require.Contains(t, out, `"attempt": "09000000000000000000000000000000"`)
		require.Equal(t, 1, strings.Count(out, `"kind": "orphan"`))
		require.Equal(t, 5, strings.Count(out, `"kind": "stray"`), out)
		require.Equal(t, "ledger "+id+": adopted; RELEASED, 2+1, 320.0 kB\n", succeeds(t, "offload", "adopt", id))
		require.Equal(t, string(data), succeeds(t, "offload", "read", id))
		require.NoError(t, s.Delete(t.Context(), offload.ShardName(offload.AttemptID{9}, 77, 0, 0)))
		require.NoError(t, s.Close())
	})
	t.Run("inspect", func(t *testing.T) {
		files, err := filepath.Glob(filepath.Join(r.dir, "tier", "*", "o1", "*", fmt.Sprintf("*-%016x", n), "manifest"))
		require.NoError(t, err)
		require.NotEmpty(t, files)
		require.Contains(t, succeeds(t, "offload", "inspect", files[0]), fmt.Sprintf(`"ledger": %s,`, other), "with what the folder keeps behind it")
		require.Contains(t, succeeds(t, "offload", "inspect", files[0]), `"crc32c": "`)
		fails(t, exitFindings, "only objects named manifest are taken apart", "offload", "inspect", targets)
	})
	t.Run("restore", func(t *testing.T) {
		file := filepath.Join(r.dir, "restored")
		succeeds(t, "offload", "restore", id, "--to-file", file)
		require.NoFileExists(t, file+".part")
		got, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, data, got)
		fails(t, exitFailed, "already exists", "offload", "restore", id, "--to-file", file)
		before := succeeds(t, "ledger", "ls")
		shards, err := filepath.Glob(filepath.Join(r.dir, "tier", "t[12]", "o1", "*", "*", "s*"))
		require.NoError(t, err)
		for _, s := range shards {
			require.NoError(t, os.Remove(s))
		}
		fails(t, exitFailed, "", "offload", "restore", id, "--ensemble", "1", "--write-quorum", "1", "--ack-quorum", "1")
		require.Equal(t, before, succeeds(t, "ledger", "ls"), "half a copy is no ledger")
		fails(t, exitFailed, "", "offload", "restore", id, "--to-file", file+"2")
		require.NoFileExists(t, file+"2")
		require.NoFileExists(t, file+"2.part")
		code, out, _ := cli("offload", "verify", id)
		require.Equal(t, exitFindings, code)
		require.Contains(t, out, "ledger "+id+": unreadable: 1 of 3 shards are good, 2 are needed\n")
		require.Contains(t, strings.Join(strings.Fields(succeeds(t, "offload", "ls", "--missing")), " "), " "+id+" RELEASED 2+1 320.0 kB 2")
	})
	t.Run("a folder that is away", func(t *testing.T) {
		text, err := os.ReadFile(targets)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(targets, []byte(strings.ReplaceAll(string(text), "create = true", "")), 0o600))
		require.NoError(t, os.Rename(filepath.Join(r.dir, "tier", "t3"), filepath.Join(r.dir, "tier", "away")))
		require.Equal(t, string(data), succeeds(t, "ledger", "read", other), "the bookies have it")
		code, out, _ := cli("offload", "targets", "check")
		require.Equal(t, exitFindings, code)
		require.Contains(t, out, "t3 is missing or empty")
	})
}
