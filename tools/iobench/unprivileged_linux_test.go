package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/tools/iobench/result"
)

// mountNew makes a file system of a kind in a file and mounts it.
func mountNew(t *testing.T, kind string) (dir string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("mounting needs root: runs as root")
	}
	mkfs, err := exec.LookPath("mkfs." + kind)
	if err != nil {
		t.Skipf("runs where mkfs.%[1]s is installed: apt-get install %[2]s", kind, map[string]string{"ext4": "e2fsprogs", "xfs": "xfsprogs"}[kind])
	}
	file, dir := filepath.Join(t.TempDir(), "disk"), t.TempDir()
	require.NoError(t, os.Chmod(filepath.Dir(dir), 0o755)) //nolint:gosec // for nobody to pass
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.NoError(t, os.Truncate(file, 1<<30))
	out, err := exec.CommandContext(t.Context(), mkfs, "-q", file).CombinedOutput()
	require.NoError(t, err, "%s", out)
	if out, err := exec.CommandContext(t.Context(), "mount", "-o", "loop", file, dir).CombinedOutput(); err != nil {
		t.Skipf("runs where loop devices can be mounted (modprobe loop %s): %v: %s", kind, err, out)
	}
	t.Cleanup(func() {
		out, err := exec.Command("umount", dir).CombinedOutput() //nolint:noctx // the test's context is over
		require.NoError(t, err, "%s", out)
	})
	return dir
}

// TestQuickUnprivileged: quick needs no root on ext4 and XFS, writes directly there, and leaves nothing behind.
func TestQuickUnprivileged(t *testing.T) {
	const nobody = 65534
	for _, kind := range []string{"ext4", "xfs"} {
		t.Run(kind, func(t *testing.T) {
			dir := filepath.Join(mountNew(t, kind), "journal")
			require.NoError(t, os.Mkdir(dir, 0o700))
			require.NoError(t, os.Chown(dir, nobody, nobody))
			self, err := os.Open("/proc/self/exe") // nobody may not look into the folder that it is in
			require.NoError(t, err)
			defer func() { _ = self.Close() }()
			c := exec.CommandContext(t.Context(), "/proc/self/fd/3", short("quick", dir, "--output", "json")...)
			c.Dir, c.Env, c.ExtraFiles = "/", append(os.Environ(), childEnv+"=1"), []*os.File{self}
			c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
			var stdout, stderr bytes.Buffer
			c.Stdout, c.Stderr = &stdout, &stderr
			require.NoError(t, c.Run(), "%s", &stderr)
			runs, err := result.Decode(strings.NewReader(stdout.String()))
			require.NoError(t, err)
			r := runs[0]
			require.True(t, r.Complete)
			require.Equal(t, kind, r.Device.FileSystem.Type)
			sync := r.Chapter(result.ChapterSync, 0)
			require.NotNil(t, sync)
			require.NotNil(t, sync.Cell("dsync/4096").Latency, "direct I/O works")
			require.NotNil(t, r.Recommendation)
			left, err := os.ReadDir(dir)
			require.NoError(t, err)
			require.Empty(t, left)
		})
	}
}
