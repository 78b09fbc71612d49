package journal

import "github.com/binderylog/bindery/internal/vfs"

// RecordOverhead is what a record adds to its body in the file.
const RecordOverhead = 20

const (
	segmentHeaderBytes = vfs.Align
	groupHeaderBytes   = 64
	recordBodyMax      = 1<<24 - 1 // the length field has 24 bits
)

// segmentCapacity is the largest record body that a segment of the given size holds.
func segmentCapacity(size int64) int64 {
	return size - segmentHeaderBytes - groupHeaderBytes - RecordOverhead
}
