package entrylog

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// commit ends a checkpoint. It lies in the last commitSize bytes of a block, so that recovery finds the last one by looking
// at ends of blocks, without reading what lies between.
//
// That commit n exists shows that checkpoint n-1 was synced: it is written after that sync returned.
type commit struct {
	meta
	off      int64  // of its record header; not stored, its place
	seq      uint32 // 1, 2, ...
	prev     int64  // offset of the preceding commit, 0 if there is none
	start    int64  // where the checkpoint's first record lies: the end of the preceding one
	tables   int64  // behind its last entry, where its run table lies
	statesAt int64  // behind the run table, where its ledger states lie
	entries  uint64
	bytes    uint64 // of the entries with their record headers
	runs     uint32 // rows
	states   uint32 // rows
}

// end is the first byte behind the checkpoint; it is aligned.
func (c *commit) end() int64 { return c.off + commitSize }

func encodeCommit(b []byte, c *commit) {
	le := binary.LittleEndian
	copy(b, commitMagic)
	putMeta(b[8:], &c.meta)
	le.PutUint32(b[56:], c.seq)
	le.PutUint32(b[60:], c.runs)
	le.PutUint32(b[64:], c.states)
	le.PutUint32(b[68:], 0)
	le.PutUint64(b[72:], uint64(c.prev))
	le.PutUint64(b[80:], uint64(c.start))
	le.PutUint64(b[88:], uint64(c.tables))
	le.PutUint64(b[96:], c.entries)
	le.PutUint64(b[104:], c.bytes)
	le.PutUint64(b[112:], uint64(c.statesAt))
}

// decodeCommit reads the commit record in b, which lies at off. It trusts the salt in the record, so it works where the
// log's header is lost; the caller compares it with what else it knows.
func decodeCommit(b []byte, off int64) (*commit, error) {
	if len(b) != commitSize {
		return nil, fmt.Errorf("%d bytes, want %d", len(b), commitSize)
	}
	body := b[RecordHeaderSize:]
	if string(body[:8]) != commitMagic {
		return nil, errors.New("no commit magic")
	}
	le := binary.LittleEndian
	kind, _, err := parseRecord(b, seedOf(le.Uint64(body[16:]), off))
	if err != nil {
		return nil, err
	}
	if kind != kindCommit {
		return nil, fmt.Errorf("record of kind %#02x, want a commit", kind)
	}
	m, err := getMeta(body[8:])
	if err != nil {
		return nil, err
	}
	c := &commit{
		meta:     m,
		off:      off,
		seq:      le.Uint32(body[56:]),
		runs:     le.Uint32(body[60:]),
		states:   le.Uint32(body[64:]),
		prev:     int64(le.Uint64(body[72:])),
		start:    int64(le.Uint64(body[80:])),
		tables:   int64(le.Uint64(body[88:])),
		entries:  le.Uint64(body[96:]),
		bytes:    le.Uint64(body[104:]),
		statesAt: int64(le.Uint64(body[112:])),
	}
	return c, c.check()
}

func (c *commit) check() error {
	switch {
	case c.start < headerSize || c.start > c.off || c.start%blockSize != 0:
		return fmt.Errorf("checkpoint start %d is out of range", c.start)
	case c.tables < c.start || c.tables > c.off:
		return fmt.Errorf("checkpoint tables %d are out of range", c.tables)
	case c.statesAt < c.tables || c.statesAt > c.off:
		return fmt.Errorf("checkpoint states %d are out of range", c.statesAt)
	case c.prev != 0 && c.prev != c.start-commitSize, c.prev == 0 && c.start != headerSize:
		return fmt.Errorf("preceding commit %d does not end where the checkpoint starts, %d", c.prev, c.start)
	case c.bytes != uint64(c.tables-c.start):
		return fmt.Errorf("%d bytes of entries between %d and %d", c.bytes, c.start, c.tables)
	case c.entries > c.bytes/(RecordHeaderSize+MinBody):
		return fmt.Errorf("%d entries in %d bytes", c.entries, c.bytes)
	case uint64(c.runs) > c.entries:
		return fmt.Errorf("%d runs of %d entries", c.runs, c.entries)
	case uint64(c.states) > uint64(c.off-c.statesAt):
		return fmt.Errorf("%d states in %d bytes", c.states, c.off-c.statesAt)
	}
	return nil
}

// trailer ends a sealed log, in the last trailerSize bytes of the file.
type trailer struct {
	meta
	off         int64 // of its record header; not stored
	sealed      int64 // Unix milliseconds
	dataEnd     int64 // behind the last checkpoint
	lastCommit  int64 // 0: a log without entries
	checkpoints uint32
	entries     uint64
	bytes       uint64 // of the entries with their record headers
	runs        section
	states      section
	ledgers     section
}

// section is a sequence of chunks of one kind.
type section struct {
	off    int64 // of the first chunk's record header
	end    int64 // behind the last one
	chunks uint32
	rows   uint64
}

func (t *trailer) end() int64 { return t.off + trailerSize }

func encodeTrailer(b []byte, t *trailer) {
	le := binary.LittleEndian
	clear(b[:trailerBody])
	copy(b, trailerMagic)
	putMeta(b[8:], &t.meta)
	le.PutUint64(b[56:], uint64(t.sealed))
	le.PutUint64(b[64:], uint64(t.dataEnd))
	le.PutUint64(b[72:], uint64(t.lastCommit))
	le.PutUint32(b[80:], t.checkpoints)
	le.PutUint64(b[84:], t.entries)
	le.PutUint64(b[92:], t.bytes)
	for i, s := range []*section{&t.runs, &t.states, &t.ledgers} {
		p := b[100+28*i:]
		le.PutUint64(p, uint64(s.off))
		le.PutUint64(p[8:], uint64(s.end))
		le.PutUint32(p[16:], s.chunks)
		le.PutUint64(p[20:], s.rows)
	}
}

// decodeTrailer reads the trailer record in b, which lies at off.
func decodeTrailer(b []byte, off int64) (*trailer, error) {
	if len(b) != trailerSize {
		return nil, fmt.Errorf("%d bytes, want %d", len(b), trailerSize)
	}
	body := b[RecordHeaderSize:]
	if string(body[:8]) != trailerMagic {
		return nil, errors.New("no trailer magic")
	}
	le := binary.LittleEndian
	kind, _, err := parseRecord(b, seedOf(le.Uint64(body[16:]), off))
	if err != nil {
		return nil, err
	}
	if kind != kindTrailer {
		return nil, fmt.Errorf("record of kind %#02x, want a trailer", kind)
	}
	m, err := getMeta(body[8:])
	if err != nil {
		return nil, err
	}
	t := &trailer{
		meta:        m,
		off:         off,
		sealed:      int64(le.Uint64(body[56:])),
		dataEnd:     int64(le.Uint64(body[64:])),
		lastCommit:  int64(le.Uint64(body[72:])),
		checkpoints: le.Uint32(body[80:]),
		entries:     le.Uint64(body[84:]),
		bytes:       le.Uint64(body[92:]),
	}
	for i, s := range []*section{&t.runs, &t.states, &t.ledgers} {
		p := body[100+28*i:]
		*s = section{off: int64(le.Uint64(p)), end: int64(le.Uint64(p[8:])), chunks: le.Uint32(p[16:]), rows: le.Uint64(p[20:])}
	}
	return t, t.check()
}

func (t *trailer) check() error {
	if t.dataEnd < headerSize || t.dataEnd > t.off || t.dataEnd%blockSize != 0 {
		return fmt.Errorf("end of data %d is out of range", t.dataEnd)
	}
	if t.lastCommit != 0 && t.lastCommit != t.dataEnd-commitSize {
		return fmt.Errorf("last commit %d does not end where the data does, %d", t.lastCommit, t.dataEnd)
	}
	if t.lastCommit == 0 && (t.dataEnd != headerSize || t.entries != 0) {
		return fmt.Errorf("%d entries up to %d without a checkpoint", t.entries, t.dataEnd)
	}
	if t.entries > t.bytes/(RecordHeaderSize+MinBody) {
		return fmt.Errorf("%d entries in %d bytes", t.entries, t.bytes)
	}
	for _, s := range []section{t.runs, t.states, t.ledgers} {
		if s.off < t.dataEnd || s.end < s.off || s.end > t.off || int64(s.chunks) > (s.end-s.off)/RecordHeaderSize || s.rows > uint64(s.end-s.off) {
			return fmt.Errorf("footer section from %d to %d with %d chunks and %d rows is out of range", s.off, s.end, s.chunks, s.rows)
		}
	}
	return nil
}
