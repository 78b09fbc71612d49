package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/binderylog/bindery/tools/iobench/result"
)

// staleAfter is the age at which results get a warning: disks wear, fill up and get other firmware.
const staleAfter = 90 * 24 * time.Hour

// refusal is a reason not to apply a run. A final one can not be overridden: the figures are not of a disk.
type refusal struct {
	text  string
	final bool
}

// judgeRun holds a run against the machine and the directories that the settings are for.
func judgeRun(r *result.Run, here machine, journals []string, now time.Time) (refused []refusal, warnings []string) {
	final := func(format string, a ...any) { refused = append(refused, refusal{fmt.Sprintf(format, a...), true}) }
	refuse := func(format string, a ...any) { refused = append(refused, refusal{fmt.Sprintf(format, a...), false}) }
	warn := func(format string, a ...any) { warnings = append(warnings, fmt.Sprintf(format, a...)) }

	for i := range 1 + len(r.OtherDevices) {
		if d := r.DeviceAt(i); d.NotRepresentative != "" {
			final("NOT REPRESENTATIVE: %s: %s; measure the disk that will hold the data", d.Dir, d.NotRepresentative)
		}
	}
	for _, w := range r.Warnings {
		if w.Severity == result.SeverityError || w.Code == result.WarnNotRepresentative && len(refused) == 0 {
			final("%s: %s; settings must not be made from these figures", w.Code, w.Text)
		}
	}
	warnings = warningsByCode(r.Warnings)
	if r.Recommendation == nil || len(r.Recommendation.Settings) == 0 {
		final("the run recommends no settings; `iobench full` does")
		return refused, warnings
	}
	if r.Recommendation.Confidence == "low" {
		warn("the run has low confidence in its settings: %s", r.Recommendation.Why)
	}
	if !r.Complete {
		refuse("the run was ended early")
	}
	if r.Environment.Host != here.host {
		refuse("the run is of host %s, this is %s", r.Environment.Host, here.host)
	}
	if !here.onDisk(r, journals) {
		refuse("the run is of the disk below %s (%s), which is not that of the journal here (%s)", r.Device.Dir, r.Device.Key(), strings.Join(journals, ", "))
	}
	switch age := now.Sub(r.StartedAt); {
	case age > staleAfter:
		warn("the run is %d days old; disks change: measure again", int(age.Hours()/24))
	case age < -time.Hour:
		warn("the run is of %s, which is yet to come: a clock is wrong", r.StartedAt.UTC().Format("2006-01-02 15:04"))
	}
	if here.kernel != "" && r.Environment.Kernel != here.kernel {
		warn("the run was made with kernel %s, this is %s", r.Environment.Kernel, here.kernel)
	}
	if r.ToolVersion != version {
		warn("the run was made with iobench %s, this is %s", r.ToolVersion, version)
	}
	return refused, warnings
}

// warningsByCode says each kind of warning once, by the first of them.
func warningsByCode(all []result.Warning) (out []string) {
	count := map[string]int{}
	for _, w := range all {
		if w.Severity == result.SeverityWarning {
			count[w.Code]++
		}
	}
	for _, w := range all {
		n := count[w.Code]
		if w.Severity != result.SeverityWarning || n == 0 {
			continue
		}
		count[w.Code] = 0
		text := w.Text
		if !strings.HasPrefix(text, strings.ReplaceAll(w.Code, "_", " ")) {
			text = w.Code + ": " + text
		}
		if n > 1 {
			text += fmt.Sprintf(" (and %d more of the kind)", n-1)
		}
		out = append(out, text)
	}
	return out
}
