package bookie

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/vfs"
)

// fakeSystem is what the kernel and udev show of an NVMe disk with a partition, a mirror of two disks, and btrfs.
func fakeSystem(t *testing.T) sysTree {
	root := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.MkdirAll(filepath.Join(root, filepath.Dir(name)), 0o750))
		require.NoError(t, os.WriteFile(filepath.Join(root, name), []byte(text), 0o600))
	}
	link := func(to, name string) {
		require.NoError(t, os.MkdirAll(filepath.Join(root, filepath.Dir(name)), 0o750))
		require.NoError(t, os.Symlink(filepath.Join(root, to), filepath.Join(root, name)))
	}
	write("proc/self/mountinfo", "21 1 259:1 / / rw,relatime shared:1 - ext4 /dev/root rw\n"+
		"30 21 259:3 / /data/a\\040b rw - xfs /dev/nvme1n1p1 rw\n"+
		"31 21 9:0 / /data/md rw - ext4 /dev/mapper/mirror rw\n"+
		"32 21 0:40 / /data/bt rw - btrfs /dev/sdc rw\n"+
		"33 21 0:41 / /data/tmp rw - tmpfs none rw\n"+
		"a line that is none\n")
	for name, files := range map[string]map[string]string{
		"sys/devices/nvme1/nvme1n1":      {"device/serial": "S23 \n", "device/model": "PM9A3   \n", "dev": "259:2\n"},
		"sys/devices/nvme1/nvme1n1/p1":   {"partition": "1\n", "dev": "259:3\n"},
		"sys/devices/nvme0/nvme0n1":      {"device/serial": "S1\n", "dev": "259:0\n"},
		"sys/devices/nvme0/nvme0n1/p1":   {"partition": "1\n", "dev": "259:1\n"},
		"sys/devices/virtual/block/dm-0": {"dev": "9:0\n", "slaves/sda/x": "", "slaves/sdb/x": ""},
		"sys/devices/ata1/sda":           {"dev": "8:0\n", "device/model": "WDC"},
		"sys/devices/ata2/sdb":           {"dev": "8:16\n"},
		"sys/devices/ata3/sdc":           {"dev": "8:32\n"},
		"run/udev/data":                  {"b8:0": "S:x\nE:ID_SERIAL_SHORT=WD-A\n", "b8:16": "E:ID_SERIAL=WD-B\n", "b8:32": "E:ID_SERIAL_SHORT=BT\nE:ID_MODEL=HDD\nE:ID_FS_UUID=bb-22\n"},
	} {
		for f, text := range files {
			write(name+"/"+f, text)
		}
	}
	// The names of partitions are made up as the kernel makes them.
	require.NoError(t, os.Rename(filepath.Join(root, "sys/devices/nvme1/nvme1n1/p1"), filepath.Join(root, "sys/devices/nvme1/nvme1n1/nvme1n1p1")))
	require.NoError(t, os.Rename(filepath.Join(root, "sys/devices/nvme0/nvme0n1/p1"), filepath.Join(root, "sys/devices/nvme0/nvme0n1/nvme0n1p1")))
	for name, to := range map[string]string{
		"nvme1n1": "sys/devices/nvme1/nvme1n1", "nvme1n1p1": "sys/devices/nvme1/nvme1n1/nvme1n1p1",
		"nvme0n1": "sys/devices/nvme0/nvme0n1", "nvme0n1p1": "sys/devices/nvme0/nvme0n1/nvme0n1p1",
		"dm-0": "sys/devices/virtual/block/dm-0", "sda": "sys/devices/ata1/sda", "sdb": "sys/devices/ata2/sdb", "sdc": "sys/devices/ata3/sdc",
	} {
		link(to, "sys/class/block/"+name)
	}
	link("sys/devices/nvme0/nvme0n1/nvme0n1p1", "sys/dev/block/259:1")
	write("dev/dm-0", "")
	link("dev/dm-0", "dev/mapper/mirror")
	write("dev/nvme1n1p1", "")
	link("dev/nvme1n1p1", "dev/disk/by-uuid/aa-11")
	return sysTree(root)
}

func TestDiskOf(t *testing.T) {
	s := fakeSystem(t)
	for dir, want := range map[string]DiskID{
		"/data/a b/ledgers": {Device: "/dev/nvme1n1p1", Model: "PM9A3", Serial: "S23", UUID: "aa-11", Type: "xfs", Mount: "/data/a b"},
		"/data/md":          {Device: "/dev/dm-0", Model: "WDC", Serial: "WD-A,WD-B", Type: "ext4", Mount: "/data/md"},
		"/data/bt/x":        {Device: "/dev/sdc", Model: "HDD", Serial: "BT", UUID: "bb-22", Type: "btrfs", Mount: "/data/bt"},
		"/data/tmp":         {Type: "tmpfs", Mount: "/data/tmp"},
		"/data/mdx":         {Device: "/dev/nvme0n1p1", Serial: "S1", Type: "ext4", Mount: "/"},
	} {
		require.Equal(t, want, s.diskOf(dir), dir)
	}
	require.Equal(t, "serial S23 (PM9A3), file system UUID aa-11, mounted at /data/a b", s.diskOf("/data/a b").String())
	require.Equal(t, DiskID{}, sysTree(t.TempDir()).diskOf("/data"), "a system that says nothing")
	require.NotPanics(t, func() { DiskOf(t.TempDir()) })
}

// TestInventoryNamesTheMissingDisk: the directories that are left tell which disk has gone.
func TestInventoryNamesTheMissingDisk(t *testing.T) {
	h := newHome(t)
	h.o.DiskOf = func(dir string) DiskID { return DiskID{Serial: "disk of " + dir, Mount: dir} }
	h.mustPrepare()
	h.run()
	b, err := vfs.ReadFile(h.fs, "/data/j1/current/bookie.json")
	require.NoError(t, err)
	require.Contains(t, string(b), `"path": "/data/l1"`)
	require.Contains(t, string(b), `"serial": "disk of /data/l1"`)
	kept := h.snapshot("/data/l1")
	h.empty("/data/l1")
	h.refused(ExitLocked, "l1 is not prepared", "at the last start it was on the disk serial disk of /data/l1, mounted at /data/l1")
	list, err := InspectDirs(h.fs, []string{"/data/j1"}, []string{"/data/l1"}, nil)
	require.NoError(t, err)
	require.Contains(t, list[1].Problem, "serial disk of /data/l1")
	removeTree(t, h.fs, "/data/l1")
	h.refused(ExitConfig, "does not exist (at the last start it was on the disk serial disk of /data/l1")

	// It decides nothing: neither its absence nor its content keeps a bookie from starting.
	require.NoError(t, h.fs.MkdirAll("/data/l1"))
	h.restore("/data/l1", kept)
	require.NoError(t, vfs.WriteFileAtomic(h.fs, "/data/l1/current/bookie.json", []byte("{")))
	require.NoError(t, h.fs.Remove("/data/j1/current/bookie.json"))
	h.run()
	again, err := vfs.ReadFile(h.fs, "/data/l1/current/bookie.json")
	require.NoError(t, err)
	require.Equal(t, string(b), string(again))
}
