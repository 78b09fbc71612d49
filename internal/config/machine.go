package config

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

// Machine is what "auto" is computed from.
type Machine struct {
	Memory       int64  // bytes this process may use
	MemorySource string // "machine" or "control group"
	Cores        int    // that the process may run on
}

// memoryUnknown stands in for the memory of a machine that does not say how much it has.
const memoryUnknown = 2 * gib

// ThisMachine looks at the machine and at the control group that the process runs in.
func ThisMachine() Machine {
	m := Machine{Memory: memoryUnknown, MemorySource: "machine", Cores: runtime.NumCPU()}
	if n := machineMemory("/proc/meminfo"); n > 0 {
		m.Memory = n
	}
	if n := groupMemory("/proc/self/cgroup", "/sys/fs/cgroup"); n > 0 && n < m.Memory {
		m.Memory, m.MemorySource = n, "control group"
	}
	return m
}

// machineMemory reads MemTotal, or returns 0.
func machineMemory(name string) int64 {
	data, err := os.ReadFile(name)
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(data) {
		fields := strings.Fields(string(line))
		if len(fields) >= 2 && fields[0] == "MemTotal:" {
			n, err := strconv.ParseInt(fields[1], 10, 64)
			if err != nil || n < 0 || n > 1<<50 {
				return 0
			}
			return n * kib
		}
	}
	return 0
}

// groupMemory returns the smallest memory limit on the way from the process's control group to the root, or 0.
func groupMemory(self, root string) int64 {
	data, err := os.ReadFile(self)
	if err != nil {
		return 0
	}
	smallest := int64(0)
	take := func(file string) {
		text, err := os.ReadFile(file)
		if err != nil {
			return
		}
		n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		if err == nil && n > 0 && n < 1<<50 && (smallest == 0 || n < smallest) {
			smallest = n // "max" and the huge number of version 1 mean no limit
		}
	}
	for line := range bytes.Lines(data) {
		parts := strings.SplitN(strings.TrimSpace(string(line)), ":", 3)
		if len(parts) != 3 {
			continue
		}
		dir, file := "", "memory.max"
		switch {
		case parts[0] == "0" && parts[1] == "": // version 2
		case strings.Contains(","+parts[1]+",", ",memory,"):
			dir, file = "memory", "memory.limit_in_bytes"
		default:
			continue
		}
		for p := filepath.Join("/", parts[2]); ; p = filepath.Dir(p) {
			take(filepath.Join(root, dir, p, file))
			if p == "/" {
				break
			}
		}
	}
	return smallest
}
