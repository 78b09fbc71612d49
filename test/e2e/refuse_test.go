//go:build e2e

package e2e

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/binderylog/bindery/internal/freeport"
	"github.com/stretchr/testify/require"
)

// fleet is a metadata store (that of a standalone) and the configuration of one more bookie beside it.
type fleet struct {
	dir, uri, config string
	port, http       int
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	dir := t.TempDir()
	s := standalone(t, dir)
	f := &fleet{dir: dir, uri: s.endpoints().Metadata, port: freeport.Test(t), http: freeport.Test(t)}
	f.config = f.write(t, "node.toml", f.toml("node-1"))
	return f
}

func (f *fleet) toml(id string) string {
	return fmt.Sprintf(`[bookie]
id = %q
listen = "127.0.0.1:%d"
[metadata]
uri = %q
timeout = "5s"
[storage]
journal_dirs = [%q]
ledger_dirs = [%q]
memory = "256MiB"
[journal]
segment_size = "16MiB"
[expert]
entry_log_size = "16MiB"
[http]
listen = "127.0.0.1:%d"
[disk]
allow_shared = true
`, id, f.port, f.uri, filepath.Join(f.dir, "j"), filepath.Join(f.dir, "l"), f.http)
}

func (f *fleet) write(t *testing.T, name, text string) string {
	t.Helper()
	name = filepath.Join(f.dir, name)
	require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	return name
}

// refused runs the bookie and checks that it ends with the code and one line that holds each of the words, with nothing
// left running.
func (f *fleet) refused(t *testing.T, code int, config string, words ...string) {
	t.Helper()
	r := command(t, f.dir, nil, "run", "--config", config)
	require.Equal(t, code, r.code, r.stderr)
	line := r.complaint(t)
	for _, w := range words {
		require.Contains(t, line, w)
	}
	refusesConnections(t, fmt.Sprintf("127.0.0.1:%d", f.port))
	refusesConnections(t, fmt.Sprintf("127.0.0.1:%d", f.http))
}

// run starts the bookie and waits until it is ready.
func (f *fleet) run(t *testing.T) *server {
	t.Helper()
	s := start(t, f.dir, "", "run", "--config", f.config)
	require.Eventually(t, func() bool {
		select {
		case <-s.exited:
			t.Fatalf("ended with %d:\n%s", s.cmd.ProcessState.ExitCode(), s.stderr)
		default:
		}
		c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", f.http))
		if err != nil {
			return false
		}
		c.Close()
		code, _ := get(t, fmt.Sprintf("http://127.0.0.1:%d/api/v2/health/ready", f.http))
		return code == 200
	}, startTimeout, 50_000_000)
	return s
}

func TestBookieOfAFleet(t *testing.T) {
	f := newFleet(t)
	f.refused(t, 1, f.config, "does not exist", "node init")
	for _, d := range []string{"j", "l"} {
		require.NoError(t, os.Mkdir(filepath.Join(f.dir, d), 0o700))
	}
	f.refused(t, 11, f.config, "node init") // never prepared
	ok(t, f.dir, "node", "init", "--config", f.config)
	s := f.run(t)
	_, body := get(t, fmt.Sprintf("http://127.0.0.1:%d/api/v1/bookie/list_bookies", f.http))
	require.Contains(t, body, "node-1")

	t.Run("directories in use", func(t *testing.T) {
		other := *f
		other.port, other.http = freeport.Test(t), freeport.Test(t)
		other.refused(t, 11, other.write(t, "other.toml", other.toml("node-1")), "in use")
	})
	t.Run("port in use", func(t *testing.T) {
		other := *f
		other.http = freeport.Test(t)
		text := strings.NewReplacer(`/j"`, `/j2"`, `/l"`, `/l2"`).Replace(other.toml("node-2"))
		config := other.write(t, "port.toml", text)
		ok(t, f.dir, "node", "init", "--config", config)
		r := command(t, f.dir, nil, "run", "--config", config)
		require.Equal(t, 2, r.code, r.stderr)
		require.Contains(t, r.complaint(t), "address already in use")
		refusesConnections(t, fmt.Sprintf("127.0.0.1:%d", other.http))
	})
	t.Run("admin port in use", func(t *testing.T) {
		other := *f
		other.port = freeport.Test(t)
		r := command(t, f.dir, nil, "run", "--config", other.write(t, "http.toml", other.toml("node-3")))
		require.Equal(t, 2, r.code, r.stderr)
		require.Contains(t, r.complaint(t), "http.listen")
	})
	require.Equal(t, 0, s.stop(syscall.SIGTERM), s.stderr)

	t.Run("directories of another bookie", func(t *testing.T) {
		f.refused(t, 10, f.write(t, "foreign.toml", f.toml("node-9")))
	})
	t.Run("newer format", func(t *testing.T) {
		format := filepath.Join(f.dir, "l", "current", "FORMAT")
		old, err := os.ReadFile(format)
		require.NoError(t, err)
		newer := newerFormat(t, old)
		require.NoError(t, os.WriteFile(format, newer, 0o600))
		f.refused(t, 12, f.config)
		require.NoError(t, os.WriteFile(format, old, 0o600))
	})
	t.Run("missing directory", func(t *testing.T) {
		require.NoError(t, os.Rename(filepath.Join(f.dir, "j"), filepath.Join(f.dir, "away")))
		r := command(t, f.dir, nil, "run", "--config", f.config)
		require.Equal(t, 1, r.code, r.stderr)
		require.Contains(t, r.complaint(t), filepath.Join(f.dir, "j"))
		_, err := os.Stat(filepath.Join(f.dir, "j"))
		require.ErrorIs(t, err, os.ErrNotExist, "nothing was created in its place")
		require.NoError(t, os.Rename(filepath.Join(f.dir, "away"), filepath.Join(f.dir, "j")))
	})
	// After all refusals the bookie is what it was.
	s = f.run(t)
	require.Equal(t, 0, s.stop(syscall.SIGINT), s.stderr)
}

func TestRunWithoutACluster(t *testing.T) {
	dir := t.TempDir()
	s := standalone(t, dir)
	f := &fleet{dir: dir, port: freeport.Test(t), http: freeport.Test(t)}
	f.uri = strings.TrimSuffix(s.endpoints().Metadata, "/ledgers") + "/elsewhere"
	f.refused(t, 11, f.write(t, "a.toml", f.toml("node-1")), "cluster init")
	f.uri = fmt.Sprintf("etcd://127.0.0.1:%d/ledgers", freeport.Test(t))
	f.refused(t, 4, f.write(t, "b.toml", f.toml("node-1")), "metadata store")
	f.uri = "zk+flat://127.0.0.1:2181/ledgers"
	f.refused(t, 1, f.write(t, "c.toml", f.toml("node-1")), "metadata")
}

func TestBadConfigurations(t *testing.T) {
	f := &fleet{dir: t.TempDir(), port: freeport.Test(t), http: freeport.Test(t), uri: "etcd://127.0.0.1:1/ledgers"}
	for _, tc := range []struct {
		name, text string
		words      []string
	}{
		{"misspelt", f.toml("a") + "[gc]\nintervall = \"1m\"\n", []string{"bad.toml:20", "did you mean gc.interval"}},
		{"malformed", f.toml("a") + "[gc\n", []string{"bad.toml:19:"}},
		{"number without unit", strings.Replace(f.toml("a"), `"256MiB"`, "256", 1), []string{"bad.toml:10", "storage.memory", "no unit"}},
		{"role", f.toml("a") + "[run]\nroles = [\"facade\"]\n", []string{"not in this version"}},
		{"tls", f.toml("a") + "[tls]\ncert = \"x\"\n", []string{"TLS is not in this version"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			name := f.write(t, "bad.toml", tc.text)
			f.refused(t, 1, name, tc.words...)
			r := command(t, f.dir, nil, "config", "check", name)
			require.Equal(t, 1, r.code)
			require.Contains(t, r.complaint(t), tc.words[0])
		})
	}
	r := command(t, f.dir, nil, "run", "--config", "none.toml")
	require.Equal(t, 1, r.code)
	require.Contains(t, r.complaint(t), "none.toml")
	r = command(t, f.dir, nil, "run", "--nonsense")
	require.Equal(t, 1, r.code, "a service manager must not start it again")
	r = command(t, f.dir, nil, "ledger", "ls", "--nonsense")
	require.Equal(t, 2, r.code)
	r = command(t, f.dir, nil, "rnu")
	require.Equal(t, 2, r.code)
	require.Contains(t, r.complaint(t), `did you mean "run"`)
}

func TestStandaloneRefusals(t *testing.T) {
	dir := t.TempDir()
	s := standalone(t, dir)
	e := s.endpoints()
	r := command(t, dir, nil, "standalone")
	require.Equal(t, 11, r.code, r.stderr)
	require.Contains(t, r.complaint(t), "in use")
	require.Equal(t, e, s.endpoints(), "the running one is not disturbed")

	busy := strings.TrimPrefix(e.Admin, "http://127.0.0.1:")
	r = command(t, dir, nil, "standalone", "--data-dir", "second", "--ports", busy)
	require.Equal(t, 2, r.code, r.stderr)
	require.Contains(t, r.complaint(t), "already in use")
	_, err := os.Stat(filepath.Join(dir, "second", "endpoints.json"))
	require.ErrorIs(t, err, os.ErrNotExist)

	foreign := filepath.Join(dir, "foreign")
	require.NoError(t, os.MkdirAll(foreign, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(foreign, "thesis.tex"), []byte("x"), 0o600))
	r = command(t, dir, nil, "standalone", "--data-dir", "foreign")
	require.Equal(t, 1, r.code, r.stderr)
	require.Contains(t, r.complaint(t), "thesis.tex")

	require.NoError(t, os.WriteFile(filepath.Join(foreign, "standalone.json"), []byte(`{"version": 99}`), 0o600))
	r = command(t, dir, nil, "standalone", "--data-dir", "foreign")
	require.Equal(t, 12, r.code, r.stderr)

	require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	r = command(t, dir, nil, "standalone", "--data-dir", "file")
	require.Equal(t, 1, r.code, r.stderr)
	for _, args := range [][]string{{"--bookies", "-1"}, {"--bookies", "1000"}, {"--ports", "x"}, {"--ports", "65535"}, {"--set", "bookie.id=x"}, {"--set", "gc.rate=fast"}} {
		r = command(t, dir, nil, append([]string{"standalone", "--data-dir", "third"}, args...)...)
		require.Equal(t, 1, r.code, "%v: %s", args, r.stderr)
		r.complaint(t)
	}
}

// newerFormat is a FORMAT file as a later version would write it.
func newerFormat(t *testing.T, old []byte) []byte {
	t.Helper()
	head, rest, found := strings.Cut(string(old), "\n")
	require.True(t, found)
	at := strings.LastIndexByte(head, ' ')
	return []byte(head[:at] + " 99\n" + rest)
}

func TestFileSystemsThatForget(t *testing.T) {
	const shm = "/dev/shm"
	if info, err := os.Stat(shm); err != nil || !info.IsDir() {
		t.Skip("no tmpfs here")
	}
	data, err := os.MkdirTemp(shm, "bindery-e2e-")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(data) })
	r := command(t, t.TempDir(), nil, "standalone", "--data-dir", data)
	require.Equal(t, 1, r.code, r.stderr)
	require.Contains(t, r.complaint(t), "disk.allow_any_fs")
}
