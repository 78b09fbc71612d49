package advice

import (
	"fmt"

	"github.com/binderylog/bindery/journal"
	"github.com/binderylog/bindery/tools/iobench/engine"
	"github.com/binderylog/bindery/tools/iobench/result"
)

// FlushRatio is what write and sync together cost over the write alone, of 4 KiB; 0 if it was not measured. With a cache
// that keeps its power, or none, it is near 1.
func FlushRatio(sync *result.Chapter) (ratio float64, cell *result.Cell) {
	if sync == nil {
		return 0, nil
	}
	c := sync.Cell(fmt.Sprintf("%s/%d", journal.IOFdatasync, 4*engine.KiB))
	if c == nil || c.WritePart == nil || c.Latency == nil || c.WritePart.P50US == 0 {
		return 0, nil
	}
	return c.Latency.P50US / c.WritePart.P50US, c
}

// powerLoss is a hint whether the disk's cache survives a power loss. It is never a promise.
func powerLoss(d *result.Device, ratio float64) string {
	known := d.Kind == "nvme" || d.Kind == "ssd" || d.Kind == "hdd"
	switch {
	case !known || ratio == 0:
		return "unknown"
	case d.WriteCache == "write through" || d.VolatileWriteCache != nil && !*d.VolatileWriteCache:
		return "likely"
	case ratio < 1.5:
		return "likely"
	case ratio > 3:
		return "unlikely"
	}
	return "unknown"
}

const (
	suspiciousRatio = 1.3
	suspiciousUS    = 60.0 // no disk without protection is so quick
	overheadShare   = 0.01
	stolenPercent   = 2.0
	freshShare      = 0.95 // of a file system that is free
)

// addWarnings adds what follows from the run as a whole.
func addWarnings(r *result.Run, sync *result.Chapter) {
	add := func(code, severity, chapter, format string, args ...any) {
		r.Warnings = append(r.Warnings, result.Warning{Code: code, Severity: severity, Chapter: chapter, Text: fmt.Sprintf(format, args...)})
	}
	d := &r.Device
	ratio, cell := FlushRatio(sync)
	d.PowerLossHint = powerLoss(d, ratio)
	if cell != nil && ratio < suspiciousRatio && cell.Latency.P50US < suspiciousUS && d.PowerLossHint == "unknown" {
		add(result.WarnSuspiciouslyFast, result.SeverityWarning, result.ChapterSync,
			"suspiciously fast: a sync of 4 KiB takes %s and the flush in it nothing, on a disk of which nothing is known: something may ignore flushes", round(cell.Latency.P50US))
	}
	if cells := smallest(sync); len(cells) > 0 {
		quickest := cells[0].Latency.P50US
		for _, c := range cells {
			quickest = min(quickest, c.Latency.P50US)
		}
		if r.Self.OverheadNS > overheadShare*quickest*1e3 {
			add(result.WarnOverhead, result.SeverityInfo, "", "timing costs %.0f ns of the %s that an operation takes", r.Self.OverheadNS, round(quickest))
		}
	}
	if r.Self.StealPercent > stolenPercent {
		add(result.WarnStolen, result.SeverityWarning, "", "the hypervisor took %.0f %% of the processor time", r.Self.StealPercent)
	}
	if !r.Plan.Prefill && r.Plan.CapPercent == 0 { // live writes nothing beforehand, for the bookie's sake
		add(result.WarnNoPrefill, result.SeverityWarning, "", "test files were not written before they were measured: blocks in use may be slower")
	}
	fs := &d.FileSystem
	if flash := d.Rotational == nil || !*d.Rotational; flash && fs.TotalBytes > 0 && float64(fs.AvailableBytes) > freshShare*float64(fs.TotalBytes) && fs.Type != result.NoFileSystem {
		add(result.WarnFreshDrive, result.SeverityInfo, "", "the disk is almost empty: a fresh or trimmed flash disk is quicker than it will be (`full` writes on until it is steady)")
	}
	if n, ok := alignment(r.Chapter(result.ChapterAlign, 0), d); ok && d.PhysicalBlockBytes > 0 && n > d.PhysicalBlockBytes {
		add(result.WarnAlignment, result.SeverityInfo, result.ChapterAlign, "the disk says that its blocks have %d bytes, but writes of %d cost the least", d.PhysicalBlockBytes, n)
	}
	for i := range r.OtherDevices {
		if o := &r.OtherDevices[i]; o.Name != "" && o.Name == d.Name {
			r.Warnings = append(r.Warnings, result.Warning{Code: result.WarnSharedDisk, Severity: result.SeverityInfo, Device: i + 1, Text: fmt.Sprintf("%s and %s are on one disk (%s)", d.Dir, o.Dir, d.Name)})
		}
	}
}
