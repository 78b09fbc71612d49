package device

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/binderylog/bindery/internal/vfs"
	"github.com/binderylog/bindery/tools/iobench/result"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeSystem lays out /proc and /sys of a machine below a directory.
func fakeSystem(t *testing.T, files map[string]string, links map[string]string) System {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		full := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(full), 0o755))
		require.NoError(t, os.WriteFile(full, []byte(text+"\n"), 0o644))
	}
	for name, target := range links {
		full := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(full), 0o755))
		require.NoError(t, os.Symlink(filepath.Join(root, target), full))
	}
	return System{Root: root}
}

const nvmeDir = "sys/devices/pci0000:00/nvme/nvme0/nvme0n1"

func nvmeFiles() map[string]string {
	files := map[string]string{
		"proc/sys/kernel/osrelease":                            "6.8.0",
		"proc/cpuinfo":                                         "model name\t: Some CPU @ 2GHz\nflags\t\t: fpu hypervisor sse",
		"proc/meminfo":                                         "MemTotal:       1024 kB",
		"proc/stat":                                            "cpu  10 1 5 80 2 0 1 3 9 9\ncpu0 1",
		"sys/class/dmi/id/sys_vendor":                          "EXAMPLE",
		nvmeDir + "/dev":                                       "259:0",
		nvmeDir + "/size":                                      "2000",
		nvmeDir + "/device/model":                              "EXAMPLE  NVMe",
		nvmeDir + "/device/firmware_rev":                       "F1",
		nvmeDir + "/device/serial":                             "S123",
		nvmeDir + "/device/hwmon1/temp1_input":                 "41500",
		nvmeDir + "/queue/rotational":                          "0",
		nvmeDir + "/queue/scheduler":                           "[mq-deadline] none",
		nvmeDir + "/queue/write_cache":                         "write back",
		nvmeDir + "/queue/fua":                                 "1",
		nvmeDir + "/queue/logical_block_size":                  "512",
		nvmeDir + "/queue/physical_block_size":                 "4096",
		nvmeDir + "/queue/nr_requests":                         "1023",
		nvmeDir + "/queue/nomerges":                            "2",
		nvmeDir + "/nvme0n1p1/dev":                             "259:1",
		nvmeDir + "/nvme0n1p1/partition":                       "1",
		"sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq": "2100000",
	}
	return files
}

var nvmeLinks = map[string]string{"sys/dev/block/259:0": nvmeDir, "sys/dev/block/259:1": nvmeDir + "/nvme0n1p1"}

// TestFactsOfADisk: a partition leads to its disk, and each attribute to its place; the serial number appears as a hash.
func TestFactsOfADisk(t *testing.T) {
	s := fakeSystem(t, nvmeFiles(), nvmeLinks)
	f := &Facts{Device: result.Device{Dir: "/data", Role: "journal"}, Number: "259:1", sys: s}
	f.inspectDisk()
	require.Equal(t, "259:0", f.Number)
	require.Equal(t, "nvme0n1", f.Name)
	require.Equal(t, "nvme", f.Kind)
	require.Equal(t, "nvme", f.Bus)
	require.Equal(t, "EXAMPLE NVMe", f.Model)
	require.Equal(t, "F1", f.Firmware)
	require.Equal(t, int64(2000*512), f.SizeBytes)
	require.Equal(t, "mq-deadline", f.Scheduler)
	require.Equal(t, "write back", f.WriteCache)
	require.True(t, *f.FUA)
	require.True(t, *f.VolatileWriteCache)
	require.False(t, *f.Rotational)
	require.Equal(t, 512, f.LogicalBlockBytes)
	require.Equal(t, 4096, f.PhysicalBlockBytes)
	require.Equal(t, 41.5, *f.TemperatureC)
	require.Equal(t, "S123", f.Serial())
	require.Equal(t, HashSerial("S123"), f.SerialHash)
	require.Len(t, f.SerialHash, 12)
	require.NotContains(t, f.SerialHash, "S123")
	require.Equal(t, "/data on /dev/nvme0n1", f.String())
	mhz, ok := s.ClockMHz()
	require.True(t, ok)
	require.Equal(t, 2100.0, mhz)

	e := s.Environment()
	require.Equal(t, "Some CPU @ 2GHz", e.CPUModel)
	require.Equal(t, int64(1<<20), e.MemoryBytes)
	require.Equal(t, "EXAMPLE", e.Virtualization)
	all, stolen := s.Ticks()
	require.Equal(t, int64(102), all)
	require.Equal(t, int64(3), stolen)
}

func TestKinds(t *testing.T) {
	yes, no := true, false
	for _, tc := range []struct {
		name, model, path, want string
		rotational              *bool
	}{
		{"nvme0n1", "X", "/sys/devices/pci/nvme/nvme0", "nvme", &no},
		{"nvme1n1", "Amazon Elastic Block Store", "/sys/devices/pci/nvme/nvme1", "virtual", &no},
		{"vda", "", "/sys/devices/pci/virtio1/block/vda", "virtual", &yes},
		{"sda", "QEMU HARDDISK", "/sys/devices/ata1", "virtual", &yes},
		{"sda", "X", "/sys/devices/ata1", "hdd", &yes},
		{"sda", "X", "/sys/devices/ata1", "ssd", &no},
		{"sda", "X", "/sys/devices/ata1", "unknown", nil},
		{"loop3", "", "/sys/devices/virtual/block/loop3", "loop", &no},
		{"zram0", "", "/sys/devices/virtual/block/zram0", "ram", &no},
		{"dm-1", "", "/sys/devices/virtual/block/dm-1", "mapped", &no},
		{"nbd0", "", "/sys/devices/virtual/block/nbd0", "network", &no},
	} {
		f := &Facts{Device: result.Device{Name: tc.name, Model: tc.model, Rotational: tc.rotational}}
		require.Equal(t, tc.want, f.kind(tc.path), tc.name)
	}
}

func TestMounts(t *testing.T) {
	s := fakeSystem(t, map[string]string{"proc/self/mountinfo": strings.Join([]string{
		"27 1 259:1 / / rw,relatime - ext4 /dev/root rw,discard",
		"28 27 259:2 / /data rw,noatime shared:1 - xfs /dev/nvme0n1p2 rw,attr2",
		`29 27 0:40 / /data/with\040blank rw - tmpfs tmpfs rw`,
		"broken line",
	}, "\n")}, nil)
	list := s.mounts()
	require.Len(t, list, 3)
	for path, want := range map[string]string{"/": "/", "/database": "/", "/data": "/data", "/data/j": "/data", "/data/with blank/x": "/data/with blank"} {
		m, ok := mountOf(list, path)
		require.True(t, ok)
		require.Equal(t, want, m.point, path)
	}
	require.Equal(t, "rw,noatime,attr2", list[1].options)
}

// TestPitfall12OtherThanProduction: what makes a disk differ from another is recorded and said.
func TestPitfall12OtherThanProduction(t *testing.T) {
	s := fakeSystem(t, nvmeFiles(), nvmeLinks)
	f := &Facts{Device: result.Device{Dir: "/data", Role: "journal"}, Number: "259:1", sys: s}
	f.inspectDisk()
	f.FileSystem = result.FileSystem{Type: "btrfs", MountOptions: "rw,nobarrier,compress=zstd", TotalBytes: 100, AvailableBytes: 5}
	codes := map[string]string{}
	for _, w := range f.Warnings(1) {
		require.Equal(t, 1, w.Device)
		codes[w.Code] = w.Severity
	}
	require.Equal(t, map[string]string{
		result.WarnMountOptions: result.SeverityWarning, result.WarnCompression: result.SeverityWarning, result.WarnScheduler: result.SeverityInfo,
		result.WarnNoMerges: result.SeverityInfo, result.WarnWriteCache: result.SeverityInfo, result.WarnFull: result.SeverityWarning, result.WarnNoDirectIO: result.SeverityWarning,
	}, codes)

	for _, tc := range []struct{ fs, kind string }{{"tmpfs", ""}, {"overlay", ""}, {"nfs", ""}, {"9p", ""}, {"fuse", ""}, {"ext4", "loop"}, {"ext4", "ram"}, {"xfs", "network"}} {
		f := &Facts{Device: result.Device{Dir: t.TempDir(), Kind: tc.kind, FileSystem: result.FileSystem{Type: tc.fs}}}
		var refused *RefusedError
		require.ErrorAs(t, f.Check(Guard{AllowLive: true}), &refused, tc.fs+tc.kind)
		require.ErrorContains(t, refused, "--allow-unsuitable")
		require.NoError(t, f.Check(Guard{AllowLive: true, AllowUnsuitable: true}))
		require.NotEmpty(t, f.NotRepresentative)
		w := f.Warnings(0)[0]
		require.Equal(t, result.WarnNotRepresentative, w.Code)
		require.Equal(t, result.SeverityError, w.Severity)
		require.Contains(t, w.Text, "NOT REPRESENTATIVE")
	}
}

// TestWrongUseTouchesNothing: each gets one line, and the directory stays as it was.
func TestWrongUseTouchesNothing(t *testing.T) {
	s := System{}
	_, err := s.Inspect(filepath.Join(t.TempDir(), "none"), "disk")
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = s.Inspect("device_test.go", "disk")
	require.ErrorContains(t, err, "is not a directory")
	_, err = s.InspectRaw("device_test.go")
	require.ErrorContains(t, err, "is not a block device")
	_, err = s.InspectRaw("/dev/null")
	require.ErrorContains(t, err, "is not a block device")

	dir := t.TempDir()
	f, err := s.Inspect(dir, "disk")
	require.NoError(t, err)
	require.NotEmpty(t, f.FileSystem.Type)
	err = f.Check(Guard{NeedBytes: 1 << 60, AllowUnsuitable: true, AllowLive: true})
	var refused *RefusedError
	require.ErrorAs(t, err, &refused)
	require.ErrorContains(t, err, "MiB left")
	require.NotContains(t, err.Error(), "\n")
	if os.Getuid() != 0 {
		require.NoError(t, os.Chmod(dir, 0o500))
		require.ErrorContains(t, f.Check(Guard{AllowUnsuitable: true, AllowLive: true}), "no permission")
		require.NoError(t, os.Chmod(dir, 0o700))
	}
	require.NoError(t, f.Check(Guard{AllowUnsuitable: true, AllowLive: true}))
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
}

// TestSymbolicLinkLeadsToTheRealDirectory.
func TestSymbolicLinkLeadsToTheRealDirectory(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(dir, link))
	a, err := System{}.Inspect(dir, "disk")
	require.NoError(t, err)
	b, err := System{}.Inspect(link, "disk")
	require.NoError(t, err)
	require.Equal(t, a.Dir, b.Dir)
	require.Equal(t, a.Number, b.Number)
}

// TestPitfall14TwoRunsAtOnce: the second run on a disk is refused, whatever directory it names; so is one beside a bookie.
func TestPitfall14TwoRunsAtOnce(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the lock is a socket name that only Linux has: runs on Linux")
	}
	f := &Facts{Device: result.Device{Dir: t.TempDir()}, Number: "999:" + filepath.Base(t.TempDir()) + t.Name()}
	first, err := f.Lock(t.Context())
	require.NoError(t, err)
	other := &Facts{Device: result.Device{Dir: "/elsewhere"}, Number: f.Number}
	_, err = other.Lock(t.Context())
	var refused *RefusedError
	require.ErrorAs(t, err, &refused)
	require.ErrorContains(t, err, "another iobench")
	require.NoError(t, first.Close())
	again, err := other.Lock(t.Context())
	require.NoError(t, err)
	require.NoError(t, again.Close())

	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "current"), 0o755))
	lock, err := vfs.OS().Lock(filepath.Join(dir, "current", lockName))
	require.NoError(t, err)
	bookie, err := System{}.Inspect(dir, "disk")
	require.NoError(t, err)
	err = bookie.Check(Guard{AllowUnsuitable: true})
	require.ErrorAs(t, err, &refused)
	require.ErrorContains(t, err, "iobench live")
	require.NoError(t, bookie.Check(Guard{AllowUnsuitable: true, AllowLive: true}))
	require.NoError(t, lock.Close())
	require.Empty(t, (&Facts{Device: result.Device{Dir: dir}, sys: System{Root: t.TempDir()}}).Live())
}

// TestRawRefusesADiskInUse.
func TestRawRefusesADiskInUse(t *testing.T) {
	files := nvmeFiles()
	files["proc/self/mountinfo"] = "27 1 259:1 / /data rw - xfs /dev/nvme0n1p1 rw"
	s := fakeSystem(t, files, nvmeLinks)
	f := &Facts{Device: result.Device{Dir: "/dev/nvme0n1"}, Number: "259:0", sys: s}
	f.inspectDisk()
	var refused *RefusedError
	require.ErrorAs(t, f.CheckRaw(Guard{}), &refused)
	require.ErrorContains(t, refused, "mounted at /data")

	files["proc/self/mountinfo"] = ""
	files[nvmeDir+"/nvme0n1p1/holders/dm-0"] = ""
	s = fakeSystem(t, files, nvmeLinks)
	f = &Facts{Device: result.Device{Dir: "/dev/nvme0n1"}, Number: "259:0", sys: s}
	f.inspectDisk()
	require.ErrorAs(t, f.CheckRaw(Guard{}), &refused)
	require.ErrorContains(t, refused, "part of dm-0")
}

// TestAPartitionHasItsOwnSize: what is behind its end belongs to others.
func TestAPartitionHasItsOwnSize(t *testing.T) {
	files := nvmeFiles()
	files[nvmeDir+"/nvme0n1p1/size"] = "1500"
	s := fakeSystem(t, files, nvmeLinks)
	n, ok := s.sectors("259:1")
	require.True(t, ok)
	require.EqualValues(t, 1500, n)
	whole, ok := s.sectors("259:0")
	require.True(t, ok)
	require.Greater(t, whole, n)
}
