package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/bookie"
	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/internal/metadata/memmeta"
)

// line runs one command line in this process and returns what it printed and how it ended.
func line(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	code = execute(context.Background(), args, &out, &errs)
	return out.String(), errs.String(), code
}

// succeeds runs a command line that must succeed.
func succeeds(t *testing.T, args ...string) string {
	t.Helper()
	out, errs, code := line(t, args...)
	require.Zero(t, code, "%v: %s", args, errs)
	return out
}

// fails runs a command line that must fail with a code and one line that says something.
func fails(t *testing.T, code int, says string, args ...string) {
	t.Helper()
	out, errs, got := line(t, args...)
	require.Equal(t, code, got, "%v: %s%s", args, out, errs)
	require.Contains(t, errs, says)
	require.Equal(t, 1, strings.Count(errs, "\n"), "one line: %q", errs)
}

// memoryCluster names a metadata store in this process, empty and for this test alone.
func memoryCluster(t *testing.T) (uri string, v *metadata.Views) {
	name := strings.ToLower(strings.ReplaceAll(t.Name(), "/", "-"))
	s := memmeta.Open(name)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return "mem://" + name, metadata.NewViews(s, "/ledgers")
}

func TestClusterCommands(t *testing.T) {
	ctx := context.Background()
	uri, v := memoryCluster(t)
	for _, args := range [][]string{{"cluster", "id"}, {"cluster", "info"}, {"cluster", "bookies"}, {"cookie", "ls"}} {
		fails(t, exitFailed, "bindery cluster init", append(args, "--metadata", uri)...)
	}
	require.Contains(t, succeeds(t, "cluster", "init", "--metadata", uri), "cluster made")
	id := strings.TrimSpace(succeeds(t, "cluster", "id", "--metadata", uri))
	require.Len(t, id, 36)
	var init clusterInit
	require.NoError(t, json.Unmarshal([]byte(succeeds(t, "cluster", "init", "--metadata", uri, "--output", "json")), &init))
	require.Equal(t, clusterInit{Metadata: uri, InstanceID: id}, init)

	_, err := v.Bookies.Register(ctx, "b1:3181", metadata.ServiceInfo{Endpoints: []metadata.Endpoint{
		{ID: "bookie", Host: "h1", Port: 3181, Protocol: "bookie-rpc"}, {ID: "httpserver", Host: "h1", Port: 8000, Protocol: "http"},
	}}, false, 0)
	require.NoError(t, err)
	_, err = v.Bookies.Register(ctx, "b2:3181", metadata.ServiceInfo{}, true, 0)
	require.NoError(t, err)
	for _, b := range []ledger.BookieID{"b1:3181", "b3:3181"} {
		_, err = v.Cookies.Put(ctx, b, []byte("5\n"), metadata.Absent)
		require.NoError(t, err)
	}
	_, err = v.Incarnations.Put(ctx, "b3:3181", &metadata.Incarnation{Number: 4, ID: "x", Loss: "a disk"}, metadata.Absent)
	require.NoError(t, err)
	_, err = v.Ledgers.Create(ctx, 1<<40, &ledger.Metadata{
		FormatVersion: 3, Ensemble: 1, WriteQuorum: 1, AckQuorum: 1, State: ledger.StateOpen, Fragments: []ledger.Fragment{{Bookies: []ledger.BookieID{"b3:3181"}}},
	})
	require.NoError(t, err)

	var info clusterInfo
	require.NoError(t, json.Unmarshal([]byte(succeeds(t, "cluster", "info", "--ledgers", "--metadata", uri, "--output", "json")), &info))
	require.Equal(t, 1, *info.Ledgers)
	info.Ledgers = nil
	require.Equal(t, clusterInfo{Metadata: uri, InstanceID: id, Layout: "HierarchicalLedgerManagerFactory", Writable: 1, ReadOnly: 1, Known: 2}, info)
	require.Contains(t, succeeds(t, "cluster", "info", "--metadata", uri), "1 writable, 1 read-only, 2 known")

	var rows []bookieRow
	require.NoError(t, json.Unmarshal([]byte(succeeds(t, "cluster", "bookies", "--metadata", uri, "--output", "json")), &rows))
	require.Equal(t, []bookieRow{
		{ID: "b1:3181", State: "writable", Address: "h1:3181", HTTP: "h1:8000"},
		{ID: "b2:3181", State: "readonly", Address: "b2:3181"},
		{ID: "b3:3181", State: "down", Incarnation: 4, Problem: "ledgers in limbo pending: a disk"},
	}, rows)
	require.NotContains(t, succeeds(t, "cluster", "bookies", "--metadata", uri, "--state", "down"), "b1:3181")
	fails(t, exitUsage, "--state", "cluster", "bookies", "--metadata", uri, "--state", "up")

	fails(t, exitRefused, "is "+id, "cluster", "format", "other", "--yes", "--metadata", uri)
	fails(t, exitRefused, "--yes", "cluster", "format", id, "--metadata", uri)
	fails(t, exitRefused, "2 bookies up", "cluster", "format", id, "--yes", "--metadata", uri)
	s, err := v.Store.Session(ctx)
	require.NoError(t, err)
	for _, b := range []ledger.BookieID{"b1:3181", "b2:3181"} {
		require.NoError(t, v.Bookies.Unregister(ctx, b, s))
	}
	require.Contains(t, succeeds(t, "cluster", "format", id, "--yes", "--metadata", uri), "formatted")
	require.NotEqual(t, id, strings.TrimSpace(succeeds(t, "cluster", "id", "--metadata", uri)))

	fails(t, exitUsage, "ledger manager", "cluster", "id", "--metadata", "zk+ms://h:2181/ledgers")
	fails(t, exitUsage, "INSTANCE-ID is missing", "cluster", "format", "--metadata", uri)
}

func TestCookieCommands(t *testing.T) {
	ctx := context.Background()
	uri, v := memoryCluster(t)
	id, err := v.Cluster.Init(ctx)
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "VERSION")
	text := "5\nbookieHost: \"b1:3181\"\njournalDir: \"/j\"\nledgerDirs: \"1\\t/l\"\ninstanceId: \"" + id + "\"\n"
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))

	fails(t, exitFailed, "no such key", "cookie", "get", "b1:3181", "--metadata", uri)
	fails(t, exitUsage, "not allowed", "cookie", "get", "b 1", "--metadata", uri)
	fails(t, exitRefused, "not of b2:3181", "cookie", "put", "b2:3181", file, "--metadata", uri)
	succeeds(t, "cookie", "put", "b1:3181", file, "--metadata", uri)
	fails(t, exitRefused, "--replace", "cookie", "put", "b1:3181", file, "--metadata", uri)
	succeeds(t, "cookie", "put", "b1:3181", file, "--replace", "--metadata", uri)
	require.Equal(t, text, succeeds(t, "cookie", "get", "b1:3181", "--metadata", uri))
	require.Equal(t, "b1:3181\n", succeeds(t, "cookie", "ls", "--metadata", uri))
	var view cookieView
	require.NoError(t, json.Unmarshal([]byte(succeeds(t, "cookie", "get", "b1:3181", "--metadata", uri, "--output", "json")), &view))
	require.Equal(t, []string{"/l"}, view.LedgerDirs)
	require.Equal(t, id, view.InstanceID)

	require.NoError(t, os.WriteFile(file, []byte(strings.Replace(text, id, "other", 1)), 0o600))
	fails(t, exitRefused, "cluster \"other\"", "cookie", "put", "b1:3181", file, "--replace", "--metadata", uri)
	require.NoError(t, os.WriteFile(file, []byte("junk"), 0o600))
	fails(t, exitFailed, "corrupt cookie in "+file, "cookie", "put", "b1:3181", file, "--metadata", uri)
	fails(t, exitFailed, "no such file", "cookie", "put", "b1:3181", file+"x", "--metadata", uri)

	_, err = v.Ledgers.Create(ctx, 5, &ledger.Metadata{
		FormatVersion: 3, Ensemble: 1, WriteQuorum: 1, AckQuorum: 1, State: ledger.StateOpen, Fragments: []ledger.Fragment{{Bookies: []ledger.BookieID{"b1:3181"}}},
	})
	require.NoError(t, err)
	reg, err := v.Bookies.Register(ctx, "b1:3181", metadata.ServiceInfo{}, false, 0)
	require.NoError(t, err)
	fails(t, exitRefused, "is running", "cookie", "rm", "b1:3181", "--yes", "--metadata", uri)
	require.NoError(t, v.Bookies.Unregister(ctx, "b1:3181", reg.Session))
	fails(t, exitRefused, "ledger 5", "cookie", "rm", "b1:3181", "--metadata", uri)
	succeeds(t, "cookie", "rm", "b1:3181", "--yes", "--metadata", uri)
	fails(t, exitFailed, "has no cookie", "cookie", "rm", "b1:3181", "--metadata", uri)
}

func TestNodeCommands(t *testing.T) {
	uri, v := memoryCluster(t)
	dir := t.TempDir()
	conf := filepath.Join(dir, "bindery.toml")
	require.NoError(t, os.WriteFile(conf, fmt.Appendf(nil, `
[bookie]
id = "b1"
listen = "127.0.0.1:3181"
[metadata]
uri = %q
[storage]
journal_dirs = [%q]
ledger_dirs = [%q, %q]
[disk]
allow_shared = true
allow_any_fs = true
`, uri, dir+"/j", dir+"/l1", dir+"/l2"), 0o600))

	fails(t, bookie.ExitLocked, "bindery cluster init", "node", "init", "--config", conf)
	_, err := os.Stat(dir + "/j")
	require.ErrorIs(t, err, os.ErrNotExist, "nothing half made")
	out, _, code := line(t, "node", "info", "--config", conf)
	require.Equal(t, exitFindings, code)
	require.Contains(t, out, "missing")

	succeeds(t, "cluster", "init", "--metadata", uri)
	var r nodeInit
	require.NoError(t, json.Unmarshal([]byte(succeeds(t, "node", "init", "--config", conf, "--output", "json")), &r))
	require.Equal(t, "b1", r.Bookie)
	require.True(t, r.New)
	require.Equal(t, uint64(1), r.Incarnation)
	require.Equal(t, []string{dir + "/j", dir + "/l1", dir + "/l2"}, r.Prepared)
	require.Contains(t, succeeds(t, "node", "init", "--config", conf), "was prepared already")
	require.Contains(t, succeeds(t, "node", "info", "--config", conf), "ready")
	version, err := os.ReadFile(dir + "/l1/current/VERSION")
	require.NoError(t, err)
	require.Equal(t, string(version), succeeds(t, "cookie", "generate", "--config", conf))
	require.Equal(t, string(version), succeeds(t, "cookie", "generate", "--config", conf, "--instance-id", r.InstanceID))
	require.Equal(t, string(version), succeeds(t, "cookie", "get", "b1", "--metadata", uri))

	require.NoError(t, os.RemoveAll(dir+"/l2"))
	out, _, code = line(t, "node", "info", "--config", conf, "--output", "json")
	require.Equal(t, exitFindings, code)
	require.Contains(t, out, `"state": "missing"`)
	_, errs, code := line(t, "node", "init", "--config", conf)
	require.Equal(t, bookie.ExitLocked, code)
	require.Contains(t, errs, "--accept-loss")
	_, errs, code = line(t, "node", "init", "--config", conf, "--accept-loss")
	require.Zero(t, code)
	require.Contains(t, errs, "limbo")
	rec, _, err := v.Incarnations.Get(context.Background(), "b1")
	require.NoError(t, err)
	require.True(t, rec.EverLost)
	require.NotEmpty(t, rec.Loss)

	fails(t, exitFailed, "roles", "node", "info", "--config", conf, "--set", "run.roles=metadata", "--set", "metadata.server.dir=/x")
	_, _, code = line(t, "node", "info", "--config", conf+"x")
	require.Equal(t, exitFailed, code)
	fails(t, exitUsage, "none of on, off and status", "node", "readonly", "maybe", "--server", "127.0.0.1:1")
	_, _, code = line(t, "node", "readonly", "status", "--server", "127.0.0.1:1")
	require.Equal(t, exitFailed, code)
}
