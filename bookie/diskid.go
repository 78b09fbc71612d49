package bookie

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// DiskID names the disk under a directory, so that people find the one that has vanished. What the system does not tell is
// empty. Nothing is decided by it.
type DiskID struct {
	Device string `json:"device,omitempty"` // such as /dev/nvme1n1p1
	Model  string `json:"model,omitempty"`
	Serial string `json:"serial,omitempty"` // several disks under one volume: all of them, separated by commas
	UUID   string `json:"fs_uuid,omitempty"`
	Type   string `json:"fs_type,omitempty"`
	Mount  string `json:"mount_point,omitempty"`
}

// String describes the disk in a message: "serial S23 (Samsung PM9A3), file system UUID ..., mounted at /data".
func (d DiskID) String() string {
	var parts []string
	switch {
	case d.Serial != "" && d.Model != "":
		parts = append(parts, "serial "+d.Serial+" ("+d.Model+")")
	case d.Serial != "":
		parts = append(parts, "serial "+d.Serial)
	case d.Device != "":
		parts = append(parts, d.Device)
	}
	if d.UUID != "" {
		parts = append(parts, "file system UUID "+d.UUID)
	}
	if d.Mount != "" {
		parts = append(parts, "mounted at "+d.Mount)
	}
	return strings.Join(parts, ", ")
}

// DiskOf asks the system which disk a directory is on.
func DiskOf(dir string) DiskID { return sysTree("/").diskOf(dir) }

// sysTree is the root of what the kernel and udev show in files; a test has one of its own.
type sysTree string

const (
	sysFileMax    = 64 << 10
	mountsMax     = 4 << 20
	volumeDepth   = 8 // levels of volumes upon volumes that are followed down to disks
	volumeMembers = 64
)

func (s sysTree) path(name string) string { return filepath.Join(string(s), name) }

// read returns the text of a small file, "" if there is none.
func (s sysTree) read(name string, limit int64) string {
	info, err := os.Stat(s.path(name))
	if err != nil || !info.Mode().IsRegular() {
		return ""
	}
	f, err := os.Open(s.path(name))
	if err != nil {
		return ""
	}
	defer f.Close()
	b := make([]byte, 0, 512)
	for int64(len(b)) < limit { // files of the kernel have no size
		if len(b) == cap(b) {
			b = slices.Grow(b, len(b))
		}
		n, err := f.Read(b[len(b):cap(b)])
		if b = b[:len(b)+n]; err != nil || n == 0 {
			break
		}
	}
	return strings.Trim(string(b), " \n\t\x00")
}

func (s sysTree) diskOf(dir string) DiskID {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return DiskID{}
	}
	if target, err := filepath.EvalSymlinks(abs); err == nil {
		abs = target
	}
	m := s.mountOf(abs)
	if m.point == "" {
		return DiskID{}
	}
	d := DiskID{Type: m.fsType, Mount: m.point}
	block := s.blockOf(m)
	if block == "" {
		return d
	}
	d.Device = "/dev/" + block
	d.UUID = s.uuidOf(block)
	var serials []string
	for _, disk := range s.disksUnder(block, volumeDepth) {
		serial, model := s.serialOf(disk)
		if serial != "" && !slices.Contains(serials, serial) {
			serials = append(serials, serial)
		}
		if d.Model == "" {
			d.Model = model
		}
	}
	d.Serial = strings.Join(serials, ",")
	return d
}

// mount is one line of /proc/self/mountinfo.
type mount struct{ number, point, fsType, source string }

// mountOf returns the mount that holds a path: the one with the longest mount point, the last one of equals.
func (s sysTree) mountOf(path string) mount {
	var best mount
	for line := range strings.Lines(s.read("proc/self/mountinfo", mountsMax)) {
		head, tail, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " - ")
		fields, rest := strings.Fields(head), strings.Fields(tail)
		if !ok || len(fields) < 5 || len(rest) < 2 {
			continue
		}
		point := unescapeMount(fields[4])
		inside := point == "/" || path == point || strings.HasPrefix(path, point+"/")
		if inside && len(point) >= len(best.point) {
			best = mount{number: fields[2], point: point, fsType: rest[0], source: unescapeMount(rest[1])}
		}
	}
	return best
}

// unescapeMount undoes the kernel's octal escapes of blanks and backslashes.
func unescapeMount(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// blockOf returns the name of a mount's block device, "" for none. The device number is not that of a block device on
// btrfs, the source is not one for a root that the boot loader named.
func (s sysTree) blockOf(m mount) string {
	if dev, ok := strings.CutPrefix(m.source, "/dev/"); ok {
		target, err := filepath.EvalSymlinks(s.path("dev/" + dev))
		if err != nil {
			target = dev
		}
		name := filepath.Base(target)
		if _, err := os.Stat(s.path("sys/class/block/" + name)); err == nil {
			return name
		}
	}
	target, err := filepath.EvalSymlinks(s.path("sys/dev/block/" + m.number))
	if err != nil {
		return ""
	}
	return filepath.Base(target)
}

// disksUnder returns the whole disks that a block device lies on: the disk of a partition, the members of a volume.
func (s sysTree) disksUnder(block string, depth int) []string {
	target, err := filepath.EvalSymlinks(s.path("sys/class/block/" + block))
	if err != nil || depth == 0 {
		return nil
	}
	if _, err := os.Stat(filepath.Join(target, "partition")); err == nil {
		block = filepath.Base(filepath.Dir(target))
	}
	members, err := os.ReadDir(s.path("sys/class/block/" + block + "/slaves"))
	if err != nil || len(members) == 0 {
		return []string{block}
	}
	var out []string
	for _, m := range members[:min(len(members), volumeMembers)] {
		out = append(out, s.disksUnder(m.Name(), depth-1)...)
	}
	return out
}

// serialOf returns what the kernel, or else udev, knows of a whole disk.
func (s sysTree) serialOf(disk string) (serial, model string) {
	base := "sys/class/block/" + disk
	for _, name := range []string{"/device/serial", "/serial"} {
		if serial == "" {
			serial = s.read(base+name, sysFileMax)
		}
	}
	model = s.read(base+"/device/model", sysFileMax)
	udev := s.udev(disk)
	for _, key := range []string{"ID_SERIAL_SHORT", "ID_SERIAL"} {
		if serial == "" {
			serial = udev[key]
		}
	}
	if model == "" {
		model = udev["ID_MODEL"]
	}
	return serial, model
}

func (s sysTree) uuidOf(block string) string {
	if id := s.udev(block)["ID_FS_UUID"]; id != "" {
		return id
	}
	links, err := os.ReadDir(s.path("dev/disk/by-uuid"))
	if err != nil {
		return ""
	}
	for _, l := range links {
		if to, err := os.Readlink(s.path("dev/disk/by-uuid/" + l.Name())); err == nil && filepath.Base(to) == block {
			return l.Name()
		}
	}
	return ""
}

// udev returns the properties that udev keeps of a block device.
func (s sysTree) udev(block string) map[string]string {
	out := map[string]string{}
	number := s.read("sys/class/block/"+block+"/dev", sysFileMax)
	if number == "" {
		return out
	}
	for line := range strings.Lines(s.read("run/udev/data/b"+number, sysFileMax)) {
		if kv, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "E:"); ok {
			k, v, _ := strings.Cut(kv, "=")
			out[k] = v
		}
	}
	return out
}
