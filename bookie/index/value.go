package index

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"slices"

	"github.com/binderylog/bindery/entrylog"
)

// docs/formats/index.md draws what is encoded here. Every value ends in a CRC32C over key and value, since bbolt's pages
// have no checksums.

const (
	// runEntriesMax is the largest count of a run in the index: a longer one costs nothing less, and splitting it more.
	runEntriesMax = 128

	crcSize    = 4
	runKeySize = 16
	// valueMax bounds a run's value: four numbers, runEntriesMax differences of at most 4 bytes, the link, the checksum.
	valueMax = 5*binary.MaxVarintLen64 + 4*runEntriesMax + crcSize
)

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	errShort   = errors.New("value is cut short")
)

// runKey is the key of a run: ledger and last entry id, big-endian, so that keys sort by both and a seek for an entry meets
// the run that holds it.
func runKey(ledger, last int64) [runKeySize]byte {
	var k [runKeySize]byte
	binary.BigEndian.PutUint64(k[:], uint64(ledger))
	binary.BigEndian.PutUint64(k[8:], uint64(last))
	return k
}

func parseRunKey(k []byte) (ledger, last int64, err error) {
	if len(k) != runKeySize {
		return 0, 0, fmt.Errorf("key has %d bytes, want %d", len(k), runKeySize)
	}
	ledger, last = int64(binary.BigEndian.Uint64(k)), int64(binary.BigEndian.Uint64(k[8:]))
	if ledger < 0 || last < 0 {
		return 0, 0, fmt.Errorf("key of ledger %d, entry %d: negative id", ledger, last)
	}
	return ledger, last, nil
}

func ledgerKey(ledger int64) [8]byte {
	var k [8]byte
	binary.BigEndian.PutUint64(k[:], uint64(ledger))
	return k
}

func logKey(id entrylog.LogID) [4]byte {
	var k [4]byte
	binary.BigEndian.PutUint32(k[:], uint32(id))
	return k
}

// seal appends the checksum over key and value.
func seal(key, value []byte) []byte {
	crc := crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, value)
	return binary.LittleEndian.AppendUint32(value, crc)
}

// open checks the checksum and returns the value without it.
func open(key, value []byte) ([]byte, error) {
	if len(value) < crcSize {
		return nil, errShort
	}
	v := value[:len(value)-crcSize]
	got := crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, v)
	if want := binary.LittleEndian.Uint32(value[len(v):]); got != want {
		return nil, fmt.Errorf("checksum is %08x, want %08x", got, want)
	}
	return v, nil
}

// appendRun encodes a run of at most runEntriesMax entries, whose ledger's preceding run ends at prev (-1: none).
func appendRun(dst []byte, key []byte, r *entrylog.Run, prev int64) []byte {
	dst = slices.Grow(dst, 32+2*len(r.Sizes)) // enough for most
	dst = binary.AppendUvarint(dst, uint64(r.Log))
	dst = binary.AppendUvarint(dst, uint64(r.Offset))
	smallest := slices.Min(r.Sizes)
	if len(r.Sizes) == 1 {
		dst = binary.AppendUvarint(dst, uint64(r.Count)<<1|1)
		dst = binary.AppendUvarint(dst, uint64(smallest))
	} else {
		dst = binary.AppendUvarint(dst, uint64(r.Count)<<1)
		dst = binary.AppendUvarint(dst, uint64(smallest))
		for _, s := range r.Sizes {
			dst = binary.AppendUvarint(dst, uint64(s-smallest))
		}
	}
	dst = binary.AppendUvarint(dst, uint64(r.First-1-prev))
	return seal(key, dst)
}

type numbers struct {
	b   []byte
	err error
}

func (n *numbers) next() uint64 {
	v, l := binary.Uvarint(n.b)
	if l <= 0 {
		if n.err == nil {
			n.err = errShort
		}
		return 0
	}
	n.b = n.b[l:]
	return v
}

// decodeRun reads a run. It keeps neither key nor value.
func decodeRun(key, value []byte) (RunInfo, error) {
	ledger, last, err := parseRunKey(key)
	if err != nil {
		return RunInfo{}, err
	}
	if len(value) > valueMax {
		return RunInfo{}, fmt.Errorf("value has %d bytes, at most %d are possible", len(value), valueMax)
	}
	v, err := open(key, value)
	if err != nil {
		return RunInfo{}, err
	}
	n := numbers{b: v}
	log, off, count := n.next(), n.next(), n.next()
	entries := count >> 1
	if n.err != nil || log > math.MaxUint32 || off > math.MaxInt64 || entries == 0 || entries > runEntriesMax || int64(entries)-1 > last {
		return RunInfo{}, fmt.Errorf("run of %d entries in log %x at %d up to entry %d is out of range", entries, log, off, last)
	}
	sizes := entries
	if count&1 == 1 {
		sizes = 1
	}
	r := RunInfo{Run: entrylog.Run{
		Ledger: ledger, First: last - int64(entries) + 1, Log: entrylog.LogID(log), Offset: int64(off), Count: uint32(entries), Sizes: make([]uint32, sizes),
	}}
	smallest := n.next()
	for i := range r.Sizes {
		more := uint64(0)
		if len(r.Sizes) > 1 {
			more = n.next()
		}
		if smallest > entrylog.MaxBody || more > entrylog.MaxBody-smallest {
			return RunInfo{}, fmt.Errorf("body of %d bytes and %d more", smallest, more)
		}
		r.Sizes[i] = uint32(smallest + more)
	}
	gap := n.next()
	if n.err != nil {
		return RunInfo{}, n.err
	}
	if len(n.b) != 0 || gap > uint64(r.First) {
		return RunInfo{}, fmt.Errorf("link %d of the run from entry %d is out of range, or %d bytes follow", gap, r.First, len(n.b))
	}
	r.Prev = r.First - 1 - int64(gap)
	return r, r.Check()
}

// ledgerRecord says what the index holds of a ledger: the other half of every "not found".
type ledgerRecord struct {
	last     int64  // last entry id, -1: no runs
	runs     uint64 // count
	hasState bool
}

func (l *ledgerRecord) encode(key []byte) []byte {
	b := binary.AppendUvarint(nil, uint64(l.last+1))
	if l.last == math.MaxInt64 {
		b = binary.AppendUvarint(nil, 1<<63)
	}
	b = binary.AppendUvarint(b, l.runs)
	state := byte(0)
	if l.hasState {
		state = 1
	}
	return seal(key, append(b, state))
}

func decodeLedger(key, value []byte) (ledgerRecord, error) {
	v, err := open(key, value)
	if err != nil {
		return ledgerRecord{}, err
	}
	n := numbers{b: v}
	last, runs := n.next(), n.next()
	if n.err != nil || last > 1<<63 || len(n.b) != 1 || n.b[0] > 1 {
		return ledgerRecord{}, errors.New("ledger record is out of range")
	}
	l := ledgerRecord{last: int64(last - 1), runs: runs, hasState: n.b[0] == 1}
	if (l.last == -1) != (runs == 0) || l.last == -1 && !l.hasState {
		return ledgerRecord{}, fmt.Errorf("ledger record with %d runs up to entry %d", runs, l.last)
	}
	return l, nil
}

// stateRecord is a ledger's state with the age of the log that it came from.
type stateRecord struct {
	age  age
	data []byte
}

func (s *stateRecord) encode(key []byte) []byte {
	b := make([]byte, 0, 8+len(s.data)+crcSize)
	b = binary.LittleEndian.AppendUint32(b, uint32(s.age.precedence))
	b = binary.LittleEndian.AppendUint32(b, uint32(s.age.log))
	return seal(key, append(b, s.data...))
}

// decodeState reads a state. The data aliases value.
func decodeState(key, value []byte) (stateRecord, error) {
	v, err := open(key, value)
	if err != nil {
		return stateRecord{}, err
	}
	if len(v) < 8 {
		return stateRecord{}, errShort
	}
	return stateRecord{
		age:  age{entrylog.LogID(binary.LittleEndian.Uint32(v)), entrylog.LogID(binary.LittleEndian.Uint32(v[4:]))},
		data: v[8:],
	}, nil
}

// logRecord notes a log whose runs are in the index.
type logRecord struct {
	precedence entrylog.LogID
	complete   bool // all of them
}

func (l *logRecord) encode(key []byte) []byte {
	b := binary.LittleEndian.AppendUint32(nil, uint32(l.precedence))
	complete := byte(0)
	if l.complete {
		complete = 1
	}
	return seal(key, append(b, complete))
}

func decodeLog(key, value []byte) (logRecord, error) {
	v, err := open(key, value)
	if err != nil {
		return logRecord{}, err
	}
	if len(key) != 4 || len(v) != 5 || v[4] > 1 {
		return logRecord{}, errors.New("log record is out of range")
	}
	return logRecord{entrylog.LogID(binary.LittleEndian.Uint32(v)), v[4] == 1}, nil
}

// age orders what logs hold.
type age struct {
	precedence, log entrylog.LogID
}

func (a age) before(b age) bool {
	if a.precedence != b.precedence {
		return a.precedence < b.precedence
	}
	return a.log < b.log
}

func parseLedgerKey(k []byte) (int64, error) {
	if len(k) != 8 {
		return 0, fmt.Errorf("key has %d bytes, want 8", len(k))
	}
	id := int64(binary.BigEndian.Uint64(k))
	if id < 0 {
		return 0, errors.New("negative ledger id")
	}
	return id, nil
}
