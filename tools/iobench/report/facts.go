package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/binderylog/bindery/tools/iobench/chart"
	"github.com/binderylog/bindery/tools/iobench/result"
)

// facts are the machine and the disks. What is not known is left out.
func facts(r *result.Run) (out []fact) {
	add := func(name string, parts ...string) {
		parts = slices.DeleteFunc(parts, func(s string) bool { return s == "" })
		if len(parts) > 0 {
			out = append(out, fact{name, strings.Join(parts, ", ")})
		}
	}
	e := &r.Environment
	memory := ""
	if e.MemoryBytes > 0 {
		memory = chart.Bytes(float64(e.MemoryBytes)) + " of memory"
	}
	add("machine", e.Host, e.CPUModel, fmt.Sprintf("%d cores", e.Cores), memory, e.Virtualization)
	add("system", e.OS+"/"+e.Arch, "kernel "+e.Kernel)
	for i := range 1 + len(r.OtherDevices) {
		d := r.DeviceAt(i)
		add(d.Role+" directory", d.Dir, deviceText(d))
		fs := &d.FileSystem
		if fs.Type == result.NoFileSystem {
			add("its file system", "none: the whole device was measured")
		} else {
			add("its file system", fs.Type, fs.MountOptions, fmt.Sprintf("%s of %s free", gigabytes(float64(fs.AvailableBytes)), gigabytes(float64(fs.TotalBytes))))
		}
		add("its write cache", d.WriteCache, flag(d.FUA, "FUA", "no FUA"), flag(d.VolatileWriteCache, "volatile", "not volatile"), hint(d.PowerLossHint))
		if d.TemperatureC != nil {
			text := fmt.Sprintf("%.0f °C at the start", *d.TemperatureC)
			if d.TemperatureMaxC != nil {
				text += fmt.Sprintf(", %.0f °C at most", *d.TemperatureMaxC)
			}
			add("its temperature", text)
		}
	}
	p := &r.Plan
	add("plan", fmt.Sprintf("%d interleaved rounds", p.Rounds), "test files of "+chart.Bytes(float64(p.FileBytes)), p.Data+" data", ifText(p.Prefill, "written once before"), goal(p.GoalP99US))
	if len(r.Labels) > 0 {
		keys := make([]string, 0, len(r.Labels))
		for k, v := range r.Labels {
			keys = append(keys, k+"="+v)
		}
		slices.Sort(keys)
		add("labels", keys...)
	}
	s := &r.Self
	add("the tool itself", fmt.Sprintf("%.0f ns for timing an operation", s.OverheadNS), fmt.Sprintf("%.0f %% of a core", s.CPUPercent), fmt.Sprintf("%d pauses of its collector, none above %s", s.GCPauses, chart.Micros(s.GCPauseMaxUS)))
	return out
}

func deviceText(d *result.Device) string {
	parts := []string{d.Kind, d.Model}
	if d.Firmware != "" {
		parts = append(parts, "firmware "+d.Firmware)
	}
	if d.Name != "" {
		parts = append(parts, d.Name)
	}
	if d.SerialHash != "" {
		parts = append(parts, "serial#"+d.SerialHash)
	}
	if d.SizeBytes > 0 {
		parts = append(parts, gigabytes(float64(d.SizeBytes)))
	}
	if d.Scheduler != "" {
		parts = append(parts, "scheduler "+d.Scheduler)
	}
	if d.LogicalBlockBytes > 0 {
		parts = append(parts, fmt.Sprintf("blocks of %d/%d B", d.LogicalBlockBytes, d.PhysicalBlockBytes))
	}
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), ", ")
}

func flag(b *bool, yes, no string) string {
	switch {
	case b == nil:
		return ""
	case *b:
		return yes
	}
	return no
}

func hint(s string) string {
	if s == "" {
		return ""
	}
	return "power-loss protection " + s
}

func ifText(b bool, s string) string {
	if b {
		return s
	}
	return ""
}

func goal(us float64) string {
	if us == 0 {
		return ""
	}
	return "goal p99 " + chart.Micros(us)
}
