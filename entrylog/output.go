package entrylog

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/binderylog/bindery/internal/vfs"
)

// output writes a file front to back with large aligned writes, while the caller fills the next buffer.
//
// It belongs to one goroutine, besides the one it starts, which only ever holds the buffer handed to it through jobs until it
// has answered through results; so no lock is needed. A failed write is final: the error comes back from every later
// call.
type output struct {
	f        vfs.File
	space    reservation
	reserved int64 // the file system has reserved space up to here; used by the write goroutine only
	fill     []byte
	spare    []byte // nil while a write is in flight
	n        int    // bytes in fill
	off      int64  // file offset of fill[0]; aligned
	touched  bool   // a write was tried since the caller last reset this
	err      error
	jobs     chan outputJob
	results  chan outputResult
	inFlight bool
	bytes    *atomic.Uint64 // counts what was written
}

type outputJob struct {
	buf []byte
	off int64
}

type outputResult struct {
	buf []byte
	err error
}

// bufferPair is the memory of an output.
type bufferPair [2][]byte

func newBufferPair(size int) (*bufferPair, error) {
	var p bufferPair
	for i := range p {
		b, err := vfs.AllocOffHeap(size)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("allocate %d bytes for writing entry logs: %w", size, err), p.free())
		}
		p[i] = b
	}
	return &p, nil
}

func (p *bufferPair) free() error {
	return errors.Join(vfs.FreeOffHeap(p[0]), vfs.FreeOffHeap(p[1]))
}

// newOutput begins writing f at off, whose block already begins with head.
func newOutput(f vfs.File, off int64, head []byte, buffers *bufferPair, space reservation, bytes *atomic.Uint64) *output {
	o := &output{
		f: f, space: space, off: alignDown(off), fill: buffers[0], spare: buffers[1], bytes: bytes,
		jobs: make(chan outputJob), results: make(chan outputResult, 1),
	}
	o.reserved = o.off
	o.n = copy(o.fill, head)
	go o.writeLoop()
	return o
}

// writeLoop makes the write calls; it ends when jobs is closed.
func (o *output) writeLoop() {
	for j := range o.jobs {
		o.results <- outputResult{j.buf, o.write(j)}
	}
	close(o.results)
}

func (o *output) write(j outputJob) error {
	end := j.off + int64(len(j.buf))
	if end > o.reserved && o.space.step > 0 {
		if err := o.reserve(end); err != nil {
			return &writeError{Err: err, Clean: true}
		}
	}
	n, err := o.f.WriteAt(j.buf, j.off)
	o.bytes.Add(uint64(n))
	if err != nil {
		return &writeError{Err: err}
	}
	return nil
}

// reservation is how an output reserves space: in steps, small ones behind the size at which the log is sealed. A step of 0
// reserves none.
type reservation struct{ step, logSize int64 }

// tailStep is the step of preallocation behind the size at which a log is sealed. What is reserved and not used is given back
// then, and a file system mounted with discard hands it to the device as a request that holds up everybody's writes, the
// longer the larger it is.
const tailStep = 4 << 20

// reserve gets space in steps; on a nearly full disk, no more than is needed.
func (o *output) reserve(end int64) error {
	step := o.space.upTo(end)
	err := o.f.Preallocate(step)
	if vfs.IsNoSpace(err) && step > end {
		step = end
		err = o.f.Preallocate(step)
	}
	if err == nil {
		o.reserved = step
	}
	return err
}

// upTo returns how far to reserve when a write ends at end.
func (r reservation) upTo(end int64) int64 {
	if to := roundUp(end, r.step); to <= r.logSize {
		return to
	}
	return max(r.logSize, roundUp(end, min(r.step, tailStep)))
}

func roundUp(n, step int64) int64 { return (n + step - 1) / step * step }

// writeError is a failed write. Clean says that the file was not touched.
type writeError struct {
	Err   error
	Clean bool
}

func (e *writeError) Error() string { return e.Err.Error() }
func (e *writeError) Unwrap() error { return e.Err }

// tell returns the offset at which the next byte will lie.
func (o *output) tell() int64 { return o.off + int64(o.n) }

// append copies p into the stream.
func (o *output) append(p []byte) error {
	for o.err == nil {
		c := copy(o.fill[o.n:], p)
		o.n += c
		p = p[c:]
		if o.n == len(o.fill) {
			o.swap()
		}
		if len(p) == 0 {
			break
		}
	}
	return o.err
}

// swap hands the full buffer to the write goroutine and takes the other one.
func (o *output) swap() {
	if o.wait(); o.err != nil {
		return
	}
	o.jobs <- outputJob{o.fill[:o.n], o.off}
	o.inFlight = true
	o.off += int64(o.n)
	o.fill, o.spare, o.n = o.spare, nil, 0
}

// wait takes the answer of the write in flight.
func (o *output) wait() {
	if !o.inFlight {
		return
	}
	r := <-o.results
	o.inFlight = false
	o.spare = r.buf[:cap(r.buf)]
	var w *writeError
	if !errors.As(r.err, &w) || !w.Clean {
		o.touched = true
	}
	if o.err == nil {
		o.err = r.err
	}
}

// flush writes what is buffered, which must end at a block's end, and waits for it.
func (o *output) flush() error {
	if o.n > 0 && o.err == nil {
		o.swap()
	}
	o.wait()
	return o.err
}

// close ends the goroutine. It writes nothing and does not close the file.
func (o *output) close() {
	o.wait()
	close(o.jobs)
	<-o.results
}
