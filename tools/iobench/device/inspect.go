package device

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/binderylog/bindery/internal/vfs"
	"github.com/binderylog/bindery/tools/iobench/result"
)

// Facts are what is known of a directory and its disk.
type Facts struct {
	result.Device
	Number string // major:minor of the whole disk; of the file system if that has no disk of its own
	sysDir string // of the disk, below the root
	sys    System
}

// Inspect looks at dir, which must be a directory; symbolic links are followed.
func (s System) Inspect(dir, role string) (*Facts, error) {
	if dir == "" { // it would be where the program was started
		return nil, errors.New("a directory without a name; . is the one that this runs in")
	}
	found, err := filepath.EvalSymlinks(dir)
	if err == nil {
		found, err = filepath.Abs(found)
	}
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(found)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("%s is not a directory; name the one that will hold the data", dir)
	}
	f := &Facts{Device: result.Device{Role: role, Dir: found, Kind: "unknown", PowerLossHint: "unknown"}, sys: s}
	f.inspectFileSystem(info)
	f.inspectDisk()
	return f, nil
}

// rawType stands for the file system of a device that is measured without one.
const rawType = result.NoFileSystem

// sectorBytes is the unit in which the kernel gives sizes, whatever a device's own is.
const sectorBytes = 512

// sectors is the size of a disk or partition.
func (s System) sectors(number string) (int64, bool) {
	return s.number("sys/dev/block", number, "size")
}

// InspectRaw looks at a whole block device.
func (s System) InspectRaw(name string) (*Facts, error) {
	found, err := filepath.EvalSymlinks(name)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(found)
	if err != nil {
		return nil, err
	}
	if info.Mode()&os.ModeDevice == 0 || info.Mode()&os.ModeCharDevice != 0 {
		return nil, fmt.Errorf("%s is not a block device; `iobench full` measures directories", name)
	}
	f := &Facts{Device: result.Device{Role: "disk", Dir: found, Kind: "unknown", PowerLossHint: "unknown"}, sys: s}
	f.FileSystem = result.FileSystem{Type: rawType, DirectIO: true}
	f.Number = deviceNumber(info)
	own := f.Number // of a partition, not that of its disk
	f.inspectDisk()
	if n, ok := s.sectors(own); ok {
		f.SizeBytes = n * sectorBytes
	}
	f.FileSystem.TotalBytes, f.FileSystem.AvailableBytes = f.SizeBytes, f.SizeBytes
	return f, nil
}

func (f *Facts) inspectFileSystem(info os.FileInfo) {
	kind, err := vfs.FSType(f.Dir)
	if err != nil {
		kind = "unknown"
	}
	f.FileSystem.Type = kind
	f.Number = fileNumber(info)
	if m, ok := mountOf(f.sys.mounts(), f.Dir); ok {
		f.FileSystem.Source, f.FileSystem.MountPoint, f.FileSystem.MountOptions = clean(m.source), clean(m.point), clean(m.options)
		if f.FileSystem.Type == "unknown" || strings.HasPrefix(f.FileSystem.Type, "0x") {
			f.FileSystem.Type = m.kind
		}
		if !f.sys.isDisk(f.Number) { // btrfs and its like have a number of their own; the source names the disk
			if info, err := os.Stat(m.source); err == nil && info.Mode()&os.ModeDevice != 0 {
				f.Number = deviceNumber(info)
			}
		}
	}
	if u, err := vfs.OS().Usage(f.Dir); err == nil {
		f.FileSystem.TotalBytes, f.FileSystem.AvailableBytes = u.Total, u.Available
	}
	f.FileSystem.BlockBytes = fileBlock(info)
}

func (s System) isDisk(number string) bool { return s.text("sys/dev/block", number, "dev") != "" }

// inspectDisk reads the attributes of the disk that Number names.
func (f *Facts) inspectDisk() {
	s := f.sys
	link := filepath.Join("/", s.Root, "sys/dev/block", f.Number)
	found, err := filepath.EvalSymlinks(link)
	if err != nil {
		return
	}
	if s.text(f.rel(found), "partition") != "" {
		found = filepath.Dir(found)
	}
	dir := f.rel(found)
	f.sysDir = dir
	if n := s.text(dir, "dev"); n != "" {
		f.Number = n
	}
	d := &f.Device
	d.Name = filepath.Base(found)
	d.Vendor, d.Model = clean(s.text(dir, "device/vendor")), clean(s.text(dir, "device/model"))
	for _, name := range []string{"device/firmware_rev", "device/rev"} {
		if d.Firmware == "" {
			d.Firmware = clean(s.text(dir, name))
		}
	}
	d.SerialHash = HashSerial(f.Serial())
	if n, ok := s.number(dir, "size"); ok {
		d.SizeBytes = n * sectorBytes
	}
	d.Rotational = s.flag(dir, "queue/rotational")
	d.FUA = s.flag(dir, "queue/fua")
	for _, a := range []struct {
		name string
		to   *int
	}{
		{"queue/logical_block_size", &d.LogicalBlockBytes}, {"queue/physical_block_size", &d.PhysicalBlockBytes}, {"queue/optimal_io_size", &d.OptimalIOBytes},
		{"queue/nr_requests", &d.QueueRequests}, {"queue/nomerges", &d.NoMerges},
	} {
		if n, ok := s.number(dir, a.name); ok {
			*a.to = int(n)
		}
	}
	d.Scheduler = chosen(s.text(dir, "queue/scheduler"))
	d.WriteCache = s.text(dir, "queue/write_cache")
	d.Members = s.names(dir, "slaves")
	if len(d.Members) == 0 {
		d.Members = nil
	}
	d.Bus = bus(found)
	d.Kind = f.kind(found)
	if d.Kind == "nvme" && d.WriteCache != "" {
		volatile := d.WriteCache == "write back" // the kernel sets it from the VWC bit
		d.VolatileWriteCache = &volatile
	}
	if t, ok := f.Temperature(); ok {
		d.TemperatureC = &t
	}
}

// rel is a path below the root.
func (f *Facts) rel(name string) string {
	r, err := filepath.Rel(filepath.Join("/", f.sys.Root), name)
	if err != nil {
		return name
	}
	return r
}

func (s System) flag(parts ...string) *bool {
	n, ok := s.number(parts...)
	if !ok {
		return nil
	}
	b := n != 0
	return &b
}

// chosen is the name in brackets of "mq-deadline [none]".
func chosen(text string) string {
	if i := strings.IndexByte(text, '['); i >= 0 {
		if j := strings.IndexByte(text[i:], ']'); j > 0 {
			return text[i+1 : i+j]
		}
	}
	return text
}

func bus(sysPath string) string {
	for _, b := range []struct{ part, name string }{{"/usb", "usb"}, {"/nvme", "nvme"}, {"/ata", "sata"}, {"/virtio", "virtio"}, {"/vbd-", "xen"}, {"/mmc", "mmc"}, {"/host", "scsi"}} {
		if strings.Contains(sysPath, b.part) {
			return b.name
		}
	}
	return ""
}

// virtualModels are what hypervisors call the disks that they make up.
var virtualModels = []string{"qemu", "virtual", "vmware", "vbox", "elastic block store", "persistentdisk", "google", "msft", "xen"}

func (f *Facts) kind(sysPath string) string {
	name, model := f.Name, strings.ToLower(f.Vendor+" "+f.Model)
	switch {
	case strings.HasPrefix(name, "loop"):
		return "loop"
	case strings.HasPrefix(name, "ram"), strings.HasPrefix(name, "zram"), strings.HasPrefix(name, "pmem"):
		return "ram"
	case strings.HasPrefix(name, "dm-"), strings.HasPrefix(name, "md"):
		return "mapped"
	case strings.HasPrefix(name, "nbd"), strings.HasPrefix(name, "rbd"), strings.HasPrefix(name, "drbd"):
		return "network"
	case strings.Contains(sysPath, "/virtio"), strings.HasPrefix(name, "xvd"),
		slices.ContainsFunc(virtualModels, func(v string) bool { return strings.Contains(model, v) }):
		return "virtual"
	case strings.HasPrefix(name, "nvme"):
		return "nvme"
	case f.Rotational == nil:
		return "unknown"
	case *f.Rotational:
		return "hdd"
	}
	return "ssd"
}

// Serial is the serial number, "" if the system does not say. It is for the question that `raw` asks; results hold its
// hash.
func (f *Facts) Serial() string {
	for _, name := range []string{"device/serial", "serial", "device/vpd_pg80", "wwid", "device/wwid"} {
		text := clean(strings.Map(func(r rune) rune {
			if r < ' ' || r > '~' {
				return ' '
			}
			return r
		}, f.sys.text(f.sysDir, name)))
		if f.sysDir != "" && text != "" {
			return text
		}
	}
	return ""
}

// HashSerial is how a serial number appears in results.
func HashSerial(serial string) string {
	if serial == "" {
		return ""
	}
	sum := sha256.Sum256([]byte("iobench:" + serial))
	return hex.EncodeToString(sum[:6])
}

// Temperature is the disk's, if it can be read.
func (f *Facts) Temperature() (celsius float64, ok bool) {
	if f.sysDir == "" {
		return 0, false
	}
	for _, dir := range []string{"device", "device/device", "device/hwmon", "device/device/hwmon"} {
		for _, name := range f.sys.names(f.sysDir, dir) {
			if !strings.HasPrefix(name, "hwmon") || name == "hwmon" {
				continue
			}
			if n, ok := f.sys.number(f.sysDir, dir, name, "temp1_input"); ok {
				return float64(n) / 1000, true
			}
		}
	}
	return 0, false
}

// ClockMHz is the clock of the first processor, if it can be read.
func (s System) ClockMHz() (mhz float64, ok bool) {
	n, ok := s.number("sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq")
	return float64(n) / 1000, ok
}

// String names the directory and its disk, for messages.
func (f *Facts) String() string {
	if f.Name == "" {
		return f.Dir
	}
	return f.Dir + " on " + path.Join("/dev", f.Name)
}
