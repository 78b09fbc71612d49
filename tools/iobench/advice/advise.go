package advice

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/binderylog/bindery/tools/iobench/engine"
	"github.com/binderylog/bindery/tools/iobench/result"
)

// garbageShare is how much of a log is dead when it is compacted, as a rule: what compaction copies follows from it.
const garbageShare = 0.5

// Advise fills in the run's recommendation, and adds the warnings that follow from comparing chapters. A run without
// durable figures gets none.
func Advise(r *result.Run) {
	sync := r.Chapter(result.ChapterSync, 0)
	addWarnings(r, sync)
	method, why, firm, ok := Method(&r.Device, sync)
	if !ok {
		return
	}
	goal := time.Duration(r.Plan.GoalP99US * 1e3)
	rec := &result.Recommendation{LimitedBy: sync.LimitedBy, Settings: []result.Setting{}, Reasons: []string{}}
	set := func(table, key, value, evidence string) *result.Setting {
		rec.Settings = append(rec.Settings, result.Setting{Table: table, Key: key, Value: strconv.Quote(value), Evidence: oneLine(evidence)})
		return &rec.Settings[len(rec.Settings)-1]
	}
	reason := func(format string, args ...any) {
		rec.Reasons = append(rec.Reasons, oneLine(fmt.Sprintf(format, args...)))
	}
	set("journal", "io", string(method), why).WithinSpread = !firm
	small := sync.Cell(fmt.Sprintf("%s/%d", method, smallest(sync)[0].BlockBytes))
	set("journal", "max_group_wait", "0", fmt.Sprintf("sync p50 %s; waiting costs more than it saves", round(small.Latency.P50US)))
	if n, why, ok := groupBytes(sync, method, goal); ok {
		set("journal", "max_group_bytes", size(n), why)
	}
	interfere := r.Chapter(result.ChapterInterfere, 0)
	if n, why, ok := backgroundRate(interfere, goal); ok {
		set("gc", "rate", fmt.Sprintf("%dMiB", n), why)
		set("recovery", "rate", fmt.Sprintf("%dMiB", n), why)
	} else if copied(interfere) && !overloaded(interfere) {
		reason("No rate of copying keeps the journal under its goal of %v on this disk: put ledgers elsewhere.", goal)
	}
	reason("Method: %s.", why)
	allocationReason(r, reason)
	if n, ok := alignment(r.Chapter(result.ChapterAlign, 0), &r.Device); ok {
		reason("Alignment: writes of %d bytes and more cost the least; the journal writes whole blocks of 4096.", n)
	}
	if n, why, ok := journals(r.Chapter(result.ChapterJournals, 0)); ok {
		reason("Journals on this disk: %d (%s).", n, why)
	}
	shareReason(interfere, reason)
	grade(r, rec, small, interfere)
	confidence(r, rec)
	if m, ok := NewModel(sync, string(method)); ok {
		m.Crowd = crowd(r.Chapter(result.ChapterJournals, 0))
		m.CPU, m.Cores = cpuPerAdd(r)
		rec.Predictions = m.Predict(max(r.Plan.EntryBytes, 1))
	}
	rec.Header = header(r, rec)
	r.Recommendation = rec
}

// cpuPerAdd is what an add costs the processor in the chapter that runs the real journal; 0 if there is none.
func cpuPerAdd(r *result.Run) (time.Duration, float64) {
	cores := float64(max(r.Environment.Cores, 1))
	c := r.Chapter(result.ChapterModel, 0)
	if c == nil {
		return 0, cores
	}
	cell := c.Cell(fmt.Sprintf("%d/100", r.Plan.EntryBytes))
	if cell == nil || cell.OpsPerS == 0 {
		return 0, cores
	}
	return time.Duration(cell.CPUPercent / 100 / cell.OpsPerS * 1e9), cores
}

func allocationReason(r *result.Run, reason func(string, ...any)) {
	c := r.Chapter(result.ChapterAlloc, 0)
	if c == nil {
		return
	}
	zeroed, grown := c.Cell(string(engine.Zeroed)), c.Cell(string(engine.Append))
	if zeroed == nil || grown == nil || zeroed.Latency == nil || grown.Latency == nil {
		return
	}
	if ratio := grown.Latency.P50US / zeroed.Latency.P50US; ratio > 1.05 {
		reason("Allocation: appending takes %.1f times as long (p50) as writing into zeroed blocks: zeroing ahead, which the journal does, pays.", ratio)
	} else {
		reason("Allocation: appending is as quick as writing into zeroed blocks here (within 5 %%).")
	}
}

// overloaded says that the disk did not keep the rate of the chapter even with nothing beside it.
func overloaded(interfere *result.Chapter) bool {
	idle := interfere.Cell("idle/same")
	return idle != nil && idle.Overloaded()
}

// shareReason says whether ledgers may be on the journal's disk.
func shareReason(c *result.Chapter, reason func(string, ...any)) {
	if c == nil {
		return
	}
	idle, all := c.Cell("idle/same"), c.Cell("all/same")
	if idle == nil || all == nil || idle.Latency == nil || all.Latency == nil || idle.Overloaded() {
		return
	}
	ratio := all.Latency.P99US / idle.Latency.P99US
	verdict := "separate disks are needed"
	switch {
	case ratio <= 2:
		verdict = "one disk for journal and ledgers is fine"
	case ratio <= 5:
		verdict = "one disk will do with the rates above"
	}
	reason("Sharing: with flushes, reads, compaction and index merges beside it the journal's p99 is %.1f times that of an idle disk: %s.", ratio, verdict)
}

func grade(r *result.Run, rec *result.Recommendation, small *result.Cell, interfere *result.Chapter) {
	p99 := small.Latency.P99US
	if interfere != nil {
		// If a disk of its own was tried for the ledgers, that is how the bookie will run.
		for _, id := range []string{"all/other", "all/same"} {
			if c := interfere.Cell(id); c != nil && c.Latency != nil {
				p99 = c.Latency.P99US
				break
			}
		}
	} else if c := r.Chapter(result.ChapterStalls, 0); c != nil && len(c.Cells) > 0 && c.Cells[0].Latency != nil {
		p99 = max(p99, c.Cells[0].Latency.P99US)
	}
	rec.JournalGrade = journalGrade(p99)
	if r.Plan.RateMBPerS == 0 {
		return
	}
	need := r.Plan.RateMBPerS * (1 + garbageShare/(1-garbageShare))
	have := 0.0
	for i := range len(r.OtherDevices) + 1 {
		if c := r.Chapter(result.ChapterSustain, i); c != nil && c.Sustained != nil && (i > 0 || len(r.OtherDevices) == 0) {
			if !c.Complete { // it ended before its caches can have been full
				return
			}
			have += c.Sustained.SteadyMBPerS
		}
	}
	if have > 0 {
		rec.LedgerGrade = ledgerGrade(have / need)
	}
}

// confidence is high only if nothing speaks against the figures.
func confidence(r *result.Run, rec *result.Recommendation) {
	rec.Confidence, rec.Why = "high", "the rounds agree, and nothing was seen that would change the figures"
	lower := func(to, why string) {
		if rec.Confidence == "high" || to == "low" && rec.Confidence == "medium" {
			rec.Confidence, rec.Why = to, why
		}
	}
	if r.Plan.Rounds < 5 {
		lower("medium", "under five rounds")
	}
	for _, w := range []struct{ code, to, why string }{
		{result.WarnNotRepresentative, "low", "the file system's figures mean nothing for a bookie"},
		{result.WarnSuspiciouslyFast, "low", "a flush costs nothing, on a disk of which nothing is known"},
		{result.WarnNoisy, "medium", "rounds of the same thing differ widely: a noisy neighbour, or other work on this machine"},
		{result.WarnStolen, "medium", "the hypervisor took processor time"},
		{result.WarnCPULimited, "medium", "the processor was the limit of some figures"},
		{result.WarnNoPrefill, "medium", "test files were not written before"},
		{result.WarnWriteCap, "medium", "--max-write ended chapters early"},
		{result.WarnLiveBookie, "low", "a bookie was at work"},
	} {
		if r.HasWarning(w.code) {
			lower(w.to, w.why)
		}
	}
	if !r.Complete {
		lower("low", "the run was cut short")
	}
}

// header names what the settings were measured on, so that they are not used for something else, or for ever.
func header(r *result.Run, rec *result.Recommendation) string {
	d := &r.Device
	name := d.Model
	if name == "" {
		name = d.Name
	}
	if d.SerialHash != "" {
		name += " serial#" + d.SerialHash
	}
	words := []string{"iobench", r.ToolVersion, r.StartedAt.Format("2006-01-02") + ",", name, "kernel", r.Environment.Kernel}
	if fs := &d.FileSystem; fs.Type == result.NoFileSystem {
		words = append(words, "whole device")
	} else {
		words = append(words, fs.Type, fs.MountOptions)
	}
	return oneLine(strings.Join(words, " ") + ", journal grade " + rec.JournalGrade)
}
