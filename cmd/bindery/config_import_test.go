package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/config"
)

func TestConfigImport(t *testing.T) {
	dir := t.TempDir()
	conf := filepath.Join(dir, "bk_server.conf")
	ledgers := filepath.Join(dir, "ledgers")
	write := func(text string) { require.NoError(t, os.WriteFile(conf, []byte(text), 0o600)) }
	write("# stock\nbookiePort=3182\nmetadataServiceUri=zk+hierarchical://zk1:2181;zk2:2181/ledgers\nledgerDirectories=" + ledgers + "\nserverNumIOThreads=8\n")

	out, errs, code := line(t, "config", "import", conf)
	require.Equal(t, exitOK, code, errs)
	require.Contains(t, out, `uri                  = "zk+hierarchical://zk1:2181;zk2:2181/ledgers" # metadataServiceUri`)
	require.Contains(t, errs, "4 keys: 3 mapped, 0 automatic, 1 obsolete, 0 unknown, 0 refused")
	require.Regexp(t, `obsolete +serverNumIOThreads +8 +of the JVM or Netty`, errs)

	toml := filepath.Join(dir, "bindery.toml")
	t.Setenv("PULSAR_PREFIX_bookieId", "bk-7")
	out, errs, code = line(t, "config", "import", conf, "--env-prefix", "PULSAR_PREFIX_", "-o", toml)
	require.Equal(t, exitOK, code, errs)
	require.Empty(t, out)
	succeeds(t, "config", "check", toml)
	require.Contains(t, succeeds(t, "config", "show", toml), `id                   = "bk-7"`)
	fails(t, exitUsage, "exists already", "config", "import", conf, "-o", toml)

	fails(t, exitFailed, "bindery's own kind of file", "config", "import", toml)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "ls"), []byte("\x7fELF\x00\x01"), 0o600))
	fails(t, exitFailed, "is no text file", "config", "import", filepath.Join(dir, "ls"))

	// What can not be imported is said, in the exit code too, and the rest is.
	write("bookiePort=3182\nmetadataServiceUri=etcd://h:1/ledgers\nentryLogPerLedgerEnabled=true\nleadgerDirectories=/x\n")
	out, errs, code = line(t, "config", "import", conf, "--output", "json")
	require.Equal(t, exitRefused, code)
	require.Empty(t, errs)
	var r struct {
		Keys     []config.ImportedKey
		TOML     string
		Problems []string
	}
	require.NoError(t, json.Unmarshal([]byte(out), &r))
	require.Equal(t, []string{config.ImportMapped, config.ImportMapped, config.ImportRefused, config.ImportUnknown},
		[]string{r.Keys[0].Class, r.Keys[1].Class, r.Keys[2].Class, r.Keys[3].Class})
	require.Contains(t, r.Keys[3].Note, "ledgerDirectories")
	require.Contains(t, r.TOML, "#   entryLogPerLedgerEnabled=true")

	write("metadataServiceUri=etcd://h:1/ledgers\nleadgerDirectories=/x\n")
	_, _, code = line(t, "config", "import", conf)
	require.Equal(t, exitOK, code)
	_, _, code = line(t, "config", "import", conf, "--strict")
	require.Equal(t, exitPartial, code)

	// A file that says too little is not a configuration yet; one that holds BookKeeper's data is not ours.
	write("bookiePort=3182\njournalMaxSizeMB=1\nledgerDirectories=" + ledgers + "\n")
	require.NoError(t, os.MkdirAll(ledgers+"/current", 0o750))
	require.NoError(t, os.WriteFile(ledgers+"/current/VERSION", []byte("5\n"), 0o600))
	_, errs, code = line(t, "config", "import", conf)
	require.Equal(t, exitFailed, code)
	require.Contains(t, errs, "metadata.uri: is not set")
	require.Contains(t, errs, "journal.segment_size")

	write("metadataServiceUri=etcd://h:1/ledgers\nledgerDirectories=" + ledgers + "\n")
	_, errs, code = line(t, "config", "import", conf)
	require.Equal(t, exitOK, code)
	require.Contains(t, errs, ledgers+" holds data of BookKeeper")

	write("a=\\u12\n")
	fails(t, exitFailed, "bk_server.conf:1", "config", "import", conf)
	fails(t, exitFailed, "no such file", "config", "import", conf+"x")
	fails(t, exitUsage, "FILE is missing", "config", "import")
}
