package result

// Device is a directory that took part and the disk below it.
type Device struct {
	Role       string     `json:"role"` // journal, ledger or disk (not said)
	Dir        string     `json:"dir"`  // with symbolic links followed; of `raw`, the device
	FileSystem FileSystem `json:"file_system"`

	Name               string   `json:"name,omitempty"` // of the kernel, "nvme0n1"
	Kind               string   `json:"kind"`           // nvme, ssd, hdd, virtual, loop, ram, mapped (device mapper, md) or unknown
	Bus                string   `json:"bus,omitempty"`
	Vendor             string   `json:"vendor,omitempty"`
	Model              string   `json:"model,omitempty"`
	Firmware           string   `json:"firmware,omitempty"`
	SerialHash         string   `json:"serial_hash,omitempty"` // first 12 hex digits of SHA-256("iobench:" + serial number)
	SizeBytes          int64    `json:"size_bytes,omitempty"`
	Rotational         *bool    `json:"rotational,omitempty"`
	LogicalBlockBytes  int      `json:"logical_block_bytes,omitempty"`
	PhysicalBlockBytes int      `json:"physical_block_bytes,omitempty"`
	OptimalIOBytes     int      `json:"optimal_io_bytes,omitempty"`
	Scheduler          string   `json:"scheduler,omitempty"`
	QueueRequests      int      `json:"queue_requests,omitempty"`
	NoMerges           int      `json:"nomerges,omitempty"`
	WriteCache         string   `json:"write_cache,omitempty"`           // "write back", "write through"; empty: not said
	FUA                *bool    `json:"fua,omitempty"`                   // forced unit access
	VolatileWriteCache *bool    `json:"volatile_write_cache,omitempty"`  // NVMe VWC
	Members            []string `json:"members,omitempty"`               // of a mapped device
	TemperatureC       *float64 `json:"temperature_c,omitempty"`         // at the start
	TemperatureMaxC    *float64 `json:"temperature_max_c,omitempty"`     // seen during the run
	PowerLossHint      string   `json:"power_loss_protection,omitempty"` // likely, unlikely or unknown; never "yes"
	NotRepresentative  string   `json:"not_representative,omitempty"`    // why figures of this file system mean nothing for a bookie
}

// NoFileSystem is the type where a whole device was measured.
const NoFileSystem = "none"

// FileSystem is what holds the directory.
type FileSystem struct {
	Type           string `json:"type"`
	Source         string `json:"source,omitempty"`
	MountPoint     string `json:"mount_point,omitempty"`
	MountOptions   string `json:"mount_options,omitempty"`
	BlockBytes     int    `json:"block_bytes,omitempty"`
	TotalBytes     int64  `json:"total_bytes"`
	AvailableBytes int64  `json:"available_bytes"` // at the start
	DirectIO       bool   `json:"direct_io"`
	DirectIOAlign  int    `json:"direct_io_align_bytes,omitempty"`
}

// Key names the disk so that results of the same one can be put side by side: its serial number if there is one,
// otherwise what is known of it.
func (d *Device) Key() string {
	if d.SerialHash != "" {
		return d.SerialHash
	}
	return d.Kind + "/" + d.Model + "/" + d.Name
}
