package device

import (
	"crypto/sha256"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// attach makes a file a block device.
func attach(t *testing.T, file string, flags ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "losetup", append(flags, "-f", "--show", file)...).CombinedOutput()
	if err != nil {
		t.Skipf("runs where losetup finds a loop device (modprobe loop): %v: %s", err, out)
	}
	name := strings.TrimSpace(string(out))
	t.Cleanup(func() {
		out, err := exec.Command("losetup", "-d", name).CombinedOutput() //nolint:noctx // the test's context is over
		require.NoError(t, err, "%s", out)
	})
	return name
}

// TestRawOnALoopDevice: one that nobody uses may be measured; one that lies below another device, or that a process has
// open, is refused, and stays as it is.
func TestRawOnALoopDevice(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("loop devices need root: runs as root")
	}
	file := filepath.Join(t.TempDir(), "disk")
	require.NoError(t, os.WriteFile(file, []byte(strings.Repeat("content ", 1<<17)), 0o600))
	sum := func() [32]byte {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		return sha256.Sum256(data)
	}
	before := sum()
	name := attach(t, file)
	check := func() error {
		f, err := System{}.InspectRaw(name)
		require.NoError(t, err)
		require.Equal(t, "loop", f.Kind)
		require.Equal(t, int64(1<<20), f.SizeBytes)
		return f.CheckRaw(Guard{AllowUnsuitable: true})
	}
	require.NoError(t, check())

	var refused *RefusedError
	f, err := System{}.InspectRaw(name)
	require.NoError(t, err)
	require.ErrorAs(t, f.CheckRaw(Guard{}), &refused, "a file of another file system is no disk")
	require.ErrorContains(t, refused, "loop device")
	require.NoError(t, f.CheckRaw(Guard{AllowUnsuitable: true}))
	require.NotEmpty(t, f.NotRepresentative)
	require.ErrorAs(t, f.CheckRaw(Guard{AllowUnsuitable: true, NeedBytes: 16 << 20}), &refused)
	require.ErrorContains(t, refused, "has 1024 KiB, a run needs 16 MiB")
	t.Run("read-only", func(t *testing.T) {
		f, err := System{}.InspectRaw(attach(t, file, "-r"))
		require.NoError(t, err)
		require.ErrorAs(t, f.CheckRaw(Guard{AllowUnsuitable: true}), &refused)
		require.ErrorContains(t, refused, "is read-only")
	})
	t.Run("below another", func(t *testing.T) {
		over := attach(t, name)
		require.ErrorAs(t, check(), &refused)
		require.ErrorContains(t, refused, filepath.Base(over)+" lies on it")
	})
	require.NoError(t, check())

	c := exec.CommandContext(t.Context(), "sh", "-c", `exec 3<"$0"; echo; read x`, name)
	in, err := c.StdinPipe()
	require.NoError(t, err)
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	_, err = out.Read(make([]byte, 1)) // it has it open
	require.NoError(t, err)
	require.ErrorAs(t, check(), &refused)
	require.ErrorContains(t, refused, "has it open")
	require.NoError(t, in.Close())
	_ = c.Wait() // nothing to read is an error to sh
	require.NoError(t, check())

	f, err = System{}.InspectRaw(name)
	require.NoError(t, err)
	held, err := f.HoldRaw(Guard{AllowUnsuitable: true})
	require.NoError(t, err)
	require.ErrorAs(t, check(), &refused, "while it is measured")
	require.ErrorContains(t, refused, "the kernel says")
	require.NoError(t, held.Close())
	require.NoError(t, check())
	require.Equal(t, before, sum())
}
