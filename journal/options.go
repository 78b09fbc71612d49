package journal

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/binderylog/bindery/internal/vfs"
)

// IOMethod says how a group becomes durable.
type IOMethod string

// The methods of the setting journal.io.
const (
	IOAuto      IOMethod = "auto"      // measure the others in the directory at start and take the best
	IODSync     IOMethod = "dsync"     // direct I/O, O_DSYNC
	IOFdatasync IOMethod = "fdatasync" // direct I/O, then fdatasync
	IORWFDSync  IOMethod = "rwf_dsync" // direct I/O, pwritev2 with RWF_DSYNC
	IOUring     IOMethod = "uring"     // io_uring; not in this build, see docs/adr
	IOBuffered  IOMethod = "buffered"  // page cache, then fdatasync (or no sync, with Relaxed)
)

// Limits and defaults.
const (
	// SegmentSizeMax keeps the number of groups in a segment below 2^19, which the numbering of positions relies on.
	SegmentSizeMax = 2 << 30
	// SegmentSizeMin leaves room for the header and a few groups; tests use it.
	SegmentSizeMin = 16 * vfs.Align
	// DefaultSegmentSize is journal.segment_size of a bookie; standalone uses 64 MiB.
	DefaultSegmentSize = 256 << 20
	// DefaultRecordBytesMax is the largest record body: the largest entry that a client may send, and what storage puts
	// around it.
	DefaultRecordBytesMax = 5<<20 + 64<<10
	// DefaultGroupBytesMax is journal.max_group_bytes.
	DefaultGroupBytesMax = 512 << 10
	// GroupsInFlightMax bounds the pipeline: more gain nothing on any disk measured, and widen what a crash may cut.
	GroupsInFlightMax = 4
)

// Options configures a Journal. The zero value means the defaults.
type Options struct {
	SegmentSize    int64         // bytes of a segment file, a multiple of vfs.Align; default DefaultSegmentSize
	MaxGroupWait   time.Duration // how long a group waits for company: 0 (default), or 1 to 20 ms
	MaxGroupBytes  int           // bytes of records at which a group is full; default DefaultGroupBytesMax
	MaxRecordBytes int           // largest record body; default DefaultRecordBytesMax, less if a segment can not hold it
	GroupsInFlight int           // groups being written at once, 1 to GroupsInFlightMax; default 2
	IO             IOMethod      // default IOAuto
	Relaxed        bool          // acknowledge from the page cache; only with IOBuffered
	QueueBytes     int           // bound on body bytes reserved or appended and not yet acknowledged; default 32 MiB
	Reserve        int           // segments kept back for the next Start, so that it needs no space; default 1, -1 for none
	Label          string        // value of the labels journal and journalIndex; default "0"
	OnWaiting      func()        // called when the answer of Waiting changes; must not block nor call the journal
	Logger         *slog.Logger  // default: discard
}

// EnsureDefaults fills the fields that are zero.
func (o *Options) EnsureDefaults() {
	if o.SegmentSize == 0 {
		o.SegmentSize = DefaultSegmentSize
	}
	if o.MaxGroupBytes == 0 {
		o.MaxGroupBytes = int(min(DefaultGroupBytesMax, max(vfs.Align, o.SegmentSize/8)))
	}
	if o.MaxRecordBytes == 0 {
		o.MaxRecordBytes = int(min(DefaultRecordBytesMax, segmentCapacity(o.SegmentSize)))
	}
	if o.GroupsInFlight == 0 {
		o.GroupsInFlight = 2
	}
	if o.IO == "" {
		o.IO = IOAuto
	}
	if o.QueueBytes == 0 {
		o.QueueBytes = 32 << 20
	}
	switch {
	case o.Reserve == 0:
		o.Reserve = 1
	case o.Reserve < 0:
		o.Reserve = 0
	}
	if o.Label == "" {
		o.Label = "0"
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

// Validate says what is wrong with the options, in the words of the configuration file.
func (o *Options) Validate() error {
	switch {
	case o.SegmentSize < SegmentSizeMin || o.SegmentSize > SegmentSizeMax || o.SegmentSize%vfs.Align != 0:
		return fmt.Errorf("journal.segment_size = %d: must be a multiple of %d between %d and %d", o.SegmentSize, vfs.Align, SegmentSizeMin, int64(SegmentSizeMax))
	case o.MaxGroupWait != 0 && (o.MaxGroupWait < time.Millisecond || o.MaxGroupWait > 20*time.Millisecond):
		return fmt.Errorf("journal.max_group_wait = %v: must be 0 or between 1ms and 20ms", o.MaxGroupWait)
	case o.MaxGroupBytes < vfs.Align || int64(o.MaxGroupBytes) > segmentCapacity(o.SegmentSize):
		return fmt.Errorf("journal.max_group_bytes = %d: must be between %d and what a segment holds, %d", o.MaxGroupBytes, vfs.Align, segmentCapacity(o.SegmentSize))
	case o.MaxRecordBytes < 1 || o.MaxRecordBytes > recordBodyMax || int64(o.MaxRecordBytes) > segmentCapacity(o.SegmentSize):
		return fmt.Errorf("a record of %d bytes does not fit a journal segment of %d bytes: raise journal.segment_size", o.MaxRecordBytes, o.SegmentSize)
	case o.GroupsInFlight < 1 || o.GroupsInFlight > GroupsInFlightMax:
		return fmt.Errorf("journal groups in flight = %d: must be between 1 and %d", o.GroupsInFlight, GroupsInFlightMax)
	case o.QueueBytes < 1:
		return fmt.Errorf("journal queue of %d bytes: must be positive", o.QueueBytes)
	case o.Relaxed && o.IO != IOBuffered:
		return fmt.Errorf(`journal.durability = "relaxed" acknowledges from the page cache and needs journal.io = "buffered", not %q`, o.IO)
	}
	switch o.IO {
	case IOAuto, IODSync, IOFdatasync, IORWFDSync, IOBuffered:
		return nil
	case IOUring:
		return &UnsupportedIOError{Method: o.IO}
	}
	return fmt.Errorf("journal.io = %q: must be auto, dsync, fdatasync, rwf_dsync or buffered", o.IO)
}
