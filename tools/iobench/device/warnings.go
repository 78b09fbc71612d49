package device

import (
	"fmt"
	"strings"

	"github.com/binderylog/bindery/tools/iobench/result"
)

// Warnings say what about this disk makes its figures differ from another's, or from production.
func (f *Facts) Warnings(index int) (list []result.Warning) {
	add := func(code, severity, format string, args ...any) {
		list = append(list, result.Warning{Code: code, Severity: severity, Device: index, Text: fmt.Sprintf(format, args...)})
	}
	fs := &f.FileSystem
	if f.NotRepresentative != "" {
		where := fs.Type
		if where == rawType {
			where = f.Dir
		}
		add(result.WarnNotRepresentative, result.SeverityError, "NOT REPRESENTATIVE: %s: %s", where, f.NotRepresentative)
	}
	options := "," + fs.MountOptions + ","
	for _, o := range []struct{ option, why string }{
		{",nobarrier,", "syncs do not flush the disk's cache: an acknowledged write may be lost"},
		{",barrier=0,", "syncs do not flush the disk's cache: an acknowledged write may be lost"},
		{",data=journal,", "data is written twice"},
		{",sync,", "every write is synced, wanted or not"},
		{",discard,", "deleted files are trimmed at once, which can stall a disk"},
	} {
		if strings.Contains(options, o.option) {
			severity := result.SeverityInfo
			if strings.Contains(o.option, "barrier") {
				severity = result.SeverityWarning
			}
			add(result.WarnMountOptions, severity, "mounted with %s: %s", strings.Trim(o.option, ","), o.why)
		}
	}
	if fs.Type == "btrfs" || fs.Type == "zfs" || strings.Contains(options, ",compress") {
		add(result.WarnCompression, result.SeverityWarning, "%s writes elsewhere each time and may compress: recycled journal segments gain nothing", fs.Type)
	}
	flash := f.Rotational != nil && !*f.Rotational
	if flash && f.Kind != "virtual" && f.Scheduler != "" && f.Scheduler != "none" {
		add(result.WarnScheduler, result.SeverityInfo, "scheduler %s on a flash disk; none is usual", f.Scheduler)
	}
	if f.NoMerges == 2 {
		add(result.WarnNoMerges, result.SeverityInfo, "nomerges is 2: neighbouring requests are not joined")
	}
	switch f.Kind {
	case "virtual":
		add(result.WarnVirtualDisk, result.SeverityInfo, "virtual disk: what a flush does is the hypervisor's affair, and neighbours share it")
	case "mapped":
		add(result.WarnMappedDisk, result.SeverityInfo, "%s is made of %s: look at those disks' caches too", f.Name, strings.Join(f.Members, ", "))
	}
	if f.WriteCache == "write back" && f.Kind != "virtual" && f.Kind != "mapped" {
		add(result.WarnWriteCache, result.SeverityInfo, "the disk has a write cache that loses power; syncs flush it")
	}
	if fs.TotalBytes > 0 && fs.AvailableBytes < fs.TotalBytes/10 {
		add(result.WarnFull, result.SeverityWarning, "the file system is over 90 %% full: slower than it was, and than an empty one is")
	}
	if !fs.DirectIO {
		add(result.WarnNoDirectIO, result.SeverityWarning, "no direct I/O here: only journal.io = \"buffered\" works, and reads come through the page cache")
	}
	return list
}
