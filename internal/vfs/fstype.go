package vfs

import "fmt"

// FSType names the file system that holds dir ("ext4", "xfs", "tmpfs", ...); one that is not known is named by its
// magic number in hexadecimal. Elsewhere than on Linux it fails with errors.ErrUnsupported.
func FSType(dir string) (string, error) { return fsTypeOS(dir) }

// BootID names the current boot of this machine; it changes when the kernel starts anew, and with it every page cache
// is gone. Elsewhere than on Linux it fails with errors.ErrUnsupported.
func BootID() (string, error) { return bootIDOS() }

// UnsuitableFS says why a file system of this type can not hold a bookie's data, or "" if nothing is known against it.
// In all of them a sync does not do what the promises of this program rest on, or what it does is not the disk's doing.
func UnsuitableFS(fsType string) string {
	switch fsType {
	case "tmpfs", "ramfs":
		return "its files live in memory only"
	case "overlay", "aufs":
		return "it is the layered file system of a container image; mount a volume"
	case "nfs", "cifs", "smb", "smb2", "9p", "afs", "ceph", "coda", "ncp":
		return "it is a network file system; a sync may be answered by a cache, and locks may be lost"
	case "ecryptfs", "fuse":
		return "it is stacked on another file system; whether a sync reaches the disk is not known"
	case "squashfs", "iso9660", "proc", "sysfs", "cgroup", "cgroup2", "devtmpfs":
		return "it is not a file system for data"
	}
	return ""
}

// fsNames maps the magic numbers of statfs(2).
var fsNames = map[uint32]string{
	0x0000ef53: "ext4", // ext2 and ext3 share the number; the ext4 driver serves all three
	0x58465342: "xfs",
	0x9123683e: "btrfs",
	0xf2f52010: "f2fs",
	0xca451a4e: "bcachefs",
	0x2fc12fc1: "zfs",
	0x3153464a: "jfs",
	0x52654973: "reiserfs",
	0x00004d44: "vfat",
	0x2011bab0: "exfat",
	0x5346544e: "ntfs",
	0x7366746e: "ntfs3",
	0x01021994: "tmpfs",
	0x858458f6: "ramfs",
	0x794c7630: "overlay",
	0x61756673: "aufs",
	0x00006969: "nfs",
	0xff534d42: "cifs",
	0x0000517b: "smb",
	0xfe534d42: "smb2",
	0x01021997: "9p",
	0x5346414f: "afs",
	0x00c36400: "ceph",
	0x73757245: "coda",
	0x0000564c: "ncp",
	0x65735546: "fuse",
	0x0000f15f: "ecryptfs",
	0x73717368: "squashfs",
	0x00009660: "iso9660",
	0x00009fa0: "proc",
	0x62656572: "sysfs",
	0x0027e0eb: "cgroup",
	0x63677270: "cgroup2",
	0x01161970: "gfs2",
	0x7461636f: "ocfs2",
}

func fsTypeName(magic uint32) string {
	if name, ok := fsNames[magic]; ok {
		return name
	}
	return fmt.Sprintf("0x%x", magic)
}
