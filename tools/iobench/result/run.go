package result

import "time"

// Schema names the form of the documents that this package writes and reads.
const Schema = "iobench/1"

// Run is one run of iobench on one subject.
type Run struct {
	Schema         string            `json:"schema"`
	ToolVersion    string            `json:"tool_version"`
	RunID          string            `json:"run_id"` // random
	Command        string            `json:"command"`
	StartedAt      time.Time         `json:"started_at"`
	ElapsedS       float64           `json:"elapsed_s"`
	Complete       bool              `json:"complete"` // false: interrupted; what is here was measured
	Labels         map[string]string `json:"labels,omitempty"`
	Environment    Environment       `json:"environment"`
	Device         Device            `json:"device"`                  // of the subject
	OtherDevices   []Device          `json:"other_devices,omitempty"` // that took part
	Plan           Plan              `json:"plan"`
	Chapters       []Chapter         `json:"chapters"`
	Warnings       []Warning         `json:"warnings,omitempty"`
	Recommendation *Recommendation   `json:"recommendation,omitempty"`
	Verification   *Verification     `json:"verification,omitempty"` // of `verify`
	Self           Self              `json:"self"`
}

// DeviceAt returns the device with this index: 0 is the subject.
func (r *Run) DeviceAt(i int) *Device {
	if i == 0 {
		return &r.Device
	}
	return &r.OtherDevices[i-1]
}

// Chapter returns the first chapter of this name about this device, nil if there is none.
func (r *Run) Chapter(name string, device int) *Chapter {
	for i := range r.Chapters {
		if c := &r.Chapters[i]; c.Name == name && c.Device == device {
			return c
		}
	}
	return nil
}

// HasWarning reports whether a warning of this code was raised.
func (r *Run) HasWarning(code string) bool {
	for _, w := range r.Warnings {
		if w.Code == code {
			return true
		}
	}
	return false
}

// WrittenBytes is what all chapters wrote.
func (r *Run) WrittenBytes() (n int64) {
	for i := range r.Chapters {
		n += r.Chapters[i].WrittenBytes
	}
	return n
}

// Environment is the machine and its system.
type Environment struct {
	Host           string `json:"host"`
	OS             string `json:"os"`
	Arch           string `json:"arch"`
	Kernel         string `json:"kernel"`
	CPUModel       string `json:"cpu_model,omitempty"`
	Cores          int    `json:"cores"`
	MemoryBytes    int64  `json:"memory_bytes,omitempty"`
	Virtualization string `json:"virtualization,omitempty"` // "kvm", "container", ... ; empty: none seen
	GoVersion      string `json:"go_version"`
}

// Plan is what the run was asked to do, before it did it.
type Plan struct {
	Chapters       []string `json:"chapters"`
	BudgetS        float64  `json:"budget_s"`
	FileBytes      int64    `json:"file_bytes"`      // size of a test file
	WriteBytes     int64    `json:"write_bytes"`     // estimate printed before the start
	MaxWriteBytes  int64    `json:"max_write_bytes"` // cap
	Seed           uint64   `json:"seed"`
	Data           string   `json:"data"`    // "random": neither compressible nor the same twice
	Prefill        bool     `json:"prefill"` // test files were written once before they were measured
	Rounds         int      `json:"rounds"`
	GoalP99US      float64  `json:"goal_p99_us"`
	RateMBPerS     float64  `json:"rate_mb_per_s,omitempty"` // asked ingest
	EntryBytes     int      `json:"entry_bytes"`
	CapPercent     float64  `json:"cap_percent,omitempty"` // of `live`
	AllowUnsuited  bool     `json:"allow_unsuitable,omitempty"`
	GroupSizeBytes []int    `json:"group_size_bytes,omitempty"`
}

// Self is what the tool knows of its own cost.
type Self struct {
	OverheadNS   float64 `json:"overhead_ns"`     // of timing and recording one operation
	TimerStepNS  float64 `json:"timer_step_ns"`   // smallest step of the clock that was seen
	CPUPercent   float64 `json:"cpu_pct"`         // of one core, over the run
	GCPauses     int64   `json:"gc_pauses"`       // during the run
	GCPauseMaxUS float64 `json:"gc_pause_max_us"` // upper bound
	StealPercent float64 `json:"steal_pct"`       // of all processor time, taken by the hypervisor
}
