package loadgen

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Usage is what a process, or several together, used during the measured time.
type Usage struct {
	PIDs          []int   `json:"pids,omitempty"`
	CPUSeconds    float64 `json:"cpu_s"`
	CPUPerMillion float64 `json:"cpu_s_per_million_adds"`
	RSSBytes      int64   `json:"resident_bytes"`       // RssAnon + RssShmem at the end; mapped files do not count
	WrittenBytes  int64   `json:"disk_bytes,omitempty"` // handed to block devices
}

// clockTicks is the kernel's USER_HZ, fixed at 100 for programs on every architecture that Go runs on.
const clockTicks = 100

// sample is the processor time and disk traffic of a process at one moment.
type sample struct {
	cpu     float64
	written int64
}

// sampleProcesses adds up what /proc says of some processes. On systems without it, or if one is gone, ok is false and no usage
// is reported.
func sampleProcesses(pids []int) (sum sample, ok bool) {
	for _, pid := range pids {
		s, ok := sampleProcess(pid)
		if !ok {
			return sum, false
		}
		sum.cpu += s.cpu
		sum.written += s.written
	}
	return sum, len(pids) > 0
}

// sampleProcess reads /proc.
func sampleProcess(pid int) (s sample, ok bool) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return s, false
	}
	// The name in brackets may hold blanks.
	i := bytes.LastIndexByte(data, ')')
	if i < 0 {
		return s, false
	}
	fields := strings.Fields(string(data[i+1:]))
	if len(fields) < 13 {
		return s, false
	}
	user, err1 := strconv.ParseFloat(fields[11], 64)
	system, err2 := strconv.ParseFloat(fields[12], 64)
	if err1 != nil || err2 != nil {
		return s, false
	}
	s.cpu = (user + system) / clockTicks
	s.written = procNumber(fmt.Sprintf("/proc/%d/io", pid), "write_bytes:")
	return s, true
}

// ResidentBytes is the memory that a process can not give back: anonymous and shared pages.
func ResidentBytes(pid int) int64 {
	name := fmt.Sprintf("/proc/%d/status", pid)
	return 1024 * (procNumber(name, "RssAnon:") + procNumber(name, "RssShmem:"))
}

// procNumber finds "key number" in a file of /proc, or returns 0.
func procNumber(name, key string) int64 {
	data, err := os.ReadFile(name)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		if len(fields) >= 2 && fields[0] == key {
			n, err := strconv.ParseInt(fields[1], 10, 64)
			if err != nil {
				return 0
			}
			return n
		}
	}
	return 0
}

// machineTimes are the stolen and the whole processor times of the machine, in ticks.
func machineTimes() (steal, all float64) {
	data, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0
	}
	first, _, _ := strings.Cut(string(data), "\n")
	fields := strings.Fields(first)
	if len(fields) < 9 || fields[0] != "cpu" {
		return 0, 0
	}
	for i, f := range fields[1:9] {
		n, err := strconv.ParseFloat(f, 64)
		if err != nil {
			return 0, 0
		}
		all += n
		if i == 7 {
			steal = n
		}
	}
	return steal, all
}

// meter measures this process, a server and the machine between start and stop.
type meter struct {
	servers              []int
	server, self         sample
	serverOK             bool
	stealTicks, allTicks float64
}

func startMeter(servers []int) *meter {
	m := &meter{servers: servers}
	m.server, m.serverOK = sampleProcesses(servers)
	m.self, _ = sampleProcess(os.Getpid())
	m.stealTicks, m.allTicks = machineTimes()
	return m
}

func (m *meter) stop(r *Result) {
	self, _ := sampleProcess(os.Getpid())
	r.Generator = Usage{CPUSeconds: self.cpu - m.self.cpu, RSSBytes: ResidentBytes(os.Getpid())}
	if now, ok := sampleProcesses(m.servers); ok && m.serverOK {
		r.Server = &Usage{PIDs: m.servers, CPUSeconds: now.cpu - m.server.cpu, WrittenBytes: now.written - m.server.written}
		for _, pid := range m.servers {
			r.Server.RSSBytes += ResidentBytes(pid)
		}
	}
	steal, all := machineTimes()
	if all > m.allTicks {
		r.StealShare = (steal - m.stealTicks) / (all - m.allTicks)
	}
}
