package result

import (
	"slices"
	"strings"
)

// Codes of warnings. A code is never given another meaning.
const (
	WarnNotRepresentative = "NOT_REPRESENTATIVE" // tmpfs, overlay, network, loop
	WarnNotDurable        = "NOT_DURABLE"        // figures of writes that no sync followed
	WarnNotSteady         = "NOT_STEADY"         // the last windows differ by more than 10 %
	WarnCPULimited        = "CPU_LIMITED"        // the tool, not the disk, was the limit
	WarnNoisy             = "NOISY"              // rounds of the same thing differ widely
	WarnSuspiciouslyFast  = "SUSPICIOUSLY_FAST"  // a flush costs nothing on a disk of which nothing is known
	WarnWriteCache        = "VOLATILE_WRITE_CACHE"
	WarnScheduler         = "SCHEDULER"
	WarnNoMerges          = "NOMERGES"
	WarnMountOptions      = "MOUNT_OPTIONS"
	WarnVirtualDisk       = "VIRTUAL_DISK"
	WarnMappedDisk        = "MAPPED_DISK" // RAID controller, device mapper, md
	WarnFreshDrive        = "FRESH_DRIVE" // trimmed or never written: faster than it will be
	WarnNoPrefill         = "NO_PREFILL"
	WarnNoDirectIO        = "NO_DIRECT_IO"
	WarnUnsupported       = "UNSUPPORTED_METHOD"
	WarnAlignment         = "ALIGNMENT" // the block size that the disk states is not the one it likes
	WarnLiveBookie        = "LIVE_BOOKIE"
	WarnSharedDisk        = "SHARED_DISK" // journal and ledgers on one disk
	WarnFull              = "ALMOST_FULL"
	WarnThermal           = "THERMAL_THROTTLE"
	WarnStolen            = "STOLEN_CPU"
	WarnFewSamples        = "FEW_SAMPLES"
	WarnOverhead          = "TOOL_OVERHEAD"
	WarnWriteCap          = "WRITE_CAP" // --max-write ended a chapter
	WarnPartial           = "PARTIAL"
	WarnCompression       = "COMPRESSING_FILE_SYSTEM"
)

// Severities of warnings.
const (
	SeverityInfo    = "info"
	SeverityWarning = "warning"
	SeverityError   = "error" // figures must not be used
)

// Warning is something that a reader must know beside the figures.
type Warning struct {
	Code     string `json:"code"`
	Severity string `json:"severity"`
	Device   int    `json:"device"`
	Chapter  string `json:"chapter,omitempty"`
	Cell     string `json:"cell,omitempty"`
	Text     string `json:"text"`
}

// briefly is what is said once for chapters that have the same trouble.
var briefly = map[string]string{
	WarnNotSteady:  "NOT STEADY: the last five windows of some cells differ by more than 10 %",
	WarnNoisy:      "medians of the rounds of some cells lie more than 50 % apart",
	WarnWriteCap:   "ended early, for the run has written as much as --max-write allows",
	WarnFewSamples: "under 100 samples in some cells; their p99 says little",
}

// briefMost is how many chapters may each say the same for themselves.
const briefMost = 2

// BriefWarnings are the warnings for people: what two directories of one disk have in common once, and what many chapters
// have in common in one line that names them.
func (r *Run) BriefWarnings() (list []Warning) {
	chapters := map[string][]string{}
	for _, w := range r.Warnings {
		if briefly[w.Code] != "" && w.Chapter != "" && !slices.Contains(chapters[w.Code], w.Chapter) {
			chapters[w.Code] = append(chapters[w.Code], w.Chapter)
		}
	}
	said := map[string]bool{}
	for _, w := range r.Warnings {
		if names := chapters[w.Code]; len(names) > briefMost && w.Chapter != "" {
			w.Text, w.Cell, w.Chapter, w.Device = briefly[w.Code]+": "+strings.Join(names, ", "), "", "", 0
		}
		if !said[w.Text] {
			said[w.Text] = true
			list = append(list, w)
		}
	}
	return list
}
