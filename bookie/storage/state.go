package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/binderylog/bindery/entrylog"
	"github.com/binderylog/bindery/internal/ledger"
)

// state is the durable part of a ledger's handle: what checkpoints, footers, the index and the journal carry about it.
//
//	+-------------+-----------+-------------+--------------------+-------------------+-------------+
//	| version (1) | flags (1) | seq (v)     | generation (v)     | loss epoch (v)    | run (v)     |
//	+-------------+-----------+-------------+--------------------+-------------------+-------------+
//	| only with flagReborn: birth (v) | floor (v) | journals (v), each: id hash (4) | position (v) |
//	+---------------------------------+-----------+------------------------------------------------+
//	| length (v) + key                | length (v) + explicit LAC                                  |
//	+---------------------------------+------------------------------------------------------------+
//	| CRC32C (4) of the 8-byte ledger id and everything before   |   (v): unsigned varint; fixed integers little-endian
//	+------------------------------------------------------------+
//
// See docs/formats/ledger-state.md.
type state struct {
	replica ledger.Replica
	seq     uint64 // raised by every change: of two states of one ledger the one with the higher seq is the newer
	run     uint32 // process run in which the Deferred mark was set; see Storage.lastUncleanRun
	// A ledger that was deleted here and came back has a birth number. Nothing of this life lies in a log up to floor, nor
	// in a journal before its position in born.
	birth uint32
	floor entrylog.LogID
	born  []bornMark
}

// bornMark is the position of a journal when a life began. Journals are named by the CRC32C of their id.
type bornMark struct {
	journal uint32
	pos     uint64
}

const (
	stateVersion = 1

	seqRunBits     = 32 // of a seq, below the number of the run
	seqFailureBits = 24 // below the number of directories that failed in that run

	flagHasKey    = 1 << 0
	flagFenced    = 1 << 1
	flagLimbo     = 1 << 2
	flagTombstone = 1 << 3
	flagDeferred  = 1 << 4
	flagForceLost = 1 << 5
	flagReborn    = 1 << 6
	flagsKnown    = 1<<7 - 1
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errStateVersion is returned for a state that a newer version of this program wrote.
var errStateVersion = errors.New("ledger state format is newer than this program")

// appendState appends the encoding of st.
func appendState(dst []byte, id int64, st *state) []byte {
	start := len(dst)
	r := &st.replica
	flags := bit(r.HasKey, flagHasKey) | bit(r.Fenced, flagFenced) | bit(r.Limbo, flagLimbo) | bit(r.Tombstone, flagTombstone) |
		bit(r.Deferred, flagDeferred) | bit(r.ForceLost, flagForceLost) | bit(st.birth != 0, flagReborn)
	dst = append(dst, stateVersion, flags)
	dst = binary.AppendUvarint(dst, st.seq)
	dst = binary.AppendUvarint(dst, uint64(r.Generation))
	dst = binary.AppendUvarint(dst, r.LossEpoch)
	dst = binary.AppendUvarint(dst, uint64(st.run))
	if st.birth != 0 {
		dst = binary.AppendUvarint(dst, uint64(st.birth))
		dst = binary.AppendUvarint(dst, uint64(st.floor))
		dst = binary.AppendUvarint(dst, uint64(len(st.born)))
		for _, b := range st.born {
			dst = binary.LittleEndian.AppendUint32(dst, b.journal)
			dst = binary.AppendUvarint(dst, b.pos)
		}
	}
	dst = binary.AppendUvarint(dst, uint64(len(r.Key)))
	dst = append(dst, r.Key...)
	dst = binary.AppendUvarint(dst, uint64(len(r.ExplicitLAC)))
	dst = append(dst, r.ExplicitLAC...)
	return binary.LittleEndian.AppendUint32(dst, stateCRC(id, dst[start:]))
}

func stateCRC(id int64, b []byte) uint32 {
	var ids [8]byte
	binary.LittleEndian.PutUint64(ids[:], uint64(id))
	return crc32.Update(crc32.Update(0, castagnoli, ids[:]), castagnoli, b)
}

func bit(set bool, flag byte) byte {
	if set {
		return flag
	}
	return 0
}

// parseState decodes what appendState wrote for the same ledger. Key and explicit LAC are copied.
func parseState(id int64, b []byte) (state, error) {
	var st state
	if len(b) < 6 {
		return st, fmt.Errorf("ledger state of %d bytes is too short", len(b))
	}
	body, sum := b[:len(b)-4], binary.LittleEndian.Uint32(b[len(b)-4:])
	if got := stateCRC(id, body); got != sum {
		return st, fmt.Errorf("ledger state checksum is %08x, want %08x", got, sum)
	}
	if body[0] != stateVersion {
		return st, fmt.Errorf("%w: version %d, this program knows %d", errStateVersion, body[0], stateVersion)
	}
	flags := body[1]
	if flags&^flagsKnown != 0 {
		return st, fmt.Errorf("ledger state has unknown flags %#02x", flags)
	}
	p := parser{b: body[2:]}
	r := &st.replica
	r.HasKey, r.Fenced, r.Limbo = flags&flagHasKey != 0, flags&flagFenced != 0, flags&flagLimbo != 0
	r.Tombstone, r.Deferred, r.ForceLost = flags&flagTombstone != 0, flags&flagDeferred != 0, flags&flagForceLost != 0
	st.seq = p.uvarint(1<<64 - 1)
	r.Generation = uint32(p.uvarint(1<<32 - 1))
	r.LossEpoch = p.uvarint(1<<64 - 1)
	st.run = uint32(p.uvarint(1<<32 - 1))
	if flags&flagReborn != 0 {
		st.birth = uint32(p.uvarint(1<<32 - 1))
		st.floor = entrylog.LogID(p.uvarint(1<<32 - 1))
		for range p.uvarint(maxJournals) {
			st.born = append(st.born, bornMark{p.fixed32(), p.uvarint(1<<64 - 1)})
		}
		if st.birth == 0 {
			p.fail("birth number is 0")
		}
	}
	r.Key = p.bytes(maxKey)
	r.ExplicitLAC = p.bytes(maxExplicitLAC)
	if p.err == nil && len(p.b) != 0 {
		p.fail(fmt.Sprintf("%d bytes follow the explicit LAC", len(p.b)))
	}
	if p.err == nil && !r.HasKey && r.Key != nil {
		p.fail("a key without its flag")
	}
	if p.err == nil && r.HasKey && r.Key == nil {
		r.Key = []byte{} // an empty key is a key
	}
	return st, p.err
}

// parser reads varints and counted bytes; after the first failure everything reads as zero.
type parser struct {
	b   []byte
	err error
}

func (p *parser) fail(what string) {
	if p.err == nil {
		p.err = errors.New(what)
	}
	p.b = nil
}

func (p *parser) uvarint(limit uint64) uint64 {
	v, n := binary.Uvarint(p.b)
	if n <= 0 {
		p.fail("a number is cut off or too long")
		return 0
	}
	if v > limit {
		p.fail(fmt.Sprintf("number %d exceeds %d", v, limit))
		return 0
	}
	p.b = p.b[n:]
	return v
}

func (p *parser) bytes(limit int) []byte {
	n := p.uvarint(uint64(limit))
	if n > uint64(len(p.b)) {
		p.fail(fmt.Sprintf("%d bytes announced, %d left", n, len(p.b)))
		return nil
	}
	if n == 0 {
		return nil
	}
	v := append([]byte(nil), p.b[:n]...)
	p.b = p.b[n:]
	return v
}

func (p *parser) fixed64() uint64 {
	if len(p.b) < 8 {
		p.fail("a number is cut off")
		return 0
	}
	v := binary.LittleEndian.Uint64(p.b)
	p.b = p.b[8:]
	return v
}

func (p *parser) fixed32() uint32 {
	if len(p.b) < 4 {
		p.fail("a number is cut off")
		return 0
	}
	v := binary.LittleEndian.Uint32(p.b)
	p.b = p.b[4:]
	return v
}
