package device

import (
	"os"
	"runtime"
	"strconv"
	"strings"

	"github.com/binderylog/bindery/tools/iobench/result"
)

// Environment describes the machine.
func (s System) Environment() result.Environment {
	e := result.Environment{
		OS: runtime.GOOS, Arch: runtime.GOARCH, Cores: runtime.NumCPU(), GoVersion: runtime.Version(),
		Kernel: clean(s.text("proc/sys/kernel/osrelease")),
	}
	if host, err := os.Hostname(); err == nil {
		e.Host = clean(host)
	}
	info := s.text("proc/cpuinfo")
	hypervisor := false
	for line := range strings.Lines(info) {
		key, value, _ := strings.Cut(line, ":")
		switch strings.TrimSpace(key) {
		case "model name", "Model":
			if e.CPUModel == "" {
				e.CPUModel = clean(value)
			}
		case "flags":
			hypervisor = hypervisor || strings.Contains(value+" ", " hypervisor ")
		}
	}
	for line := range strings.Lines(s.text("proc/meminfo")) {
		if f := strings.Fields(line); len(f) >= 2 && f[0] == "MemTotal:" {
			n, _ := strconv.ParseInt(f[1], 10, 64) // 0 if it is no number: not known
			e.MemoryBytes = n * 1024
		}
	}
	switch {
	case s.text("run/systemd/container") != "":
		e.Virtualization = "container"
	case hypervisor:
		e.Virtualization = clean(s.text("sys/class/dmi/id/sys_vendor"))
		if e.Virtualization == "" {
			e.Virtualization = "hypervisor"
		}
	}
	return e
}

// Ticks are the times of all processors since the start of the machine, in units of the kernel: of all kinds, and stolen
// by the hypervisor.
func (s System) Ticks() (all, stolen int64) {
	line, _, _ := strings.Cut(s.text("proc/stat"), "\n")
	f := strings.Fields(line)
	const stealColumn = 8
	for i := 1; i < len(f) && i <= stealColumn; i++ { // guest times are part of user
		n, _ := strconv.ParseInt(f[i], 10, 64) // 0 if it is no number
		all += n
		if i == stealColumn {
			stolen = n
		}
	}
	return all, stolen
}
