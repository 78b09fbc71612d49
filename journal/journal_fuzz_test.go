package journal

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/vfs"
	"github.com/binderylog/bindery/internal/vfs/memfs"
)

func FuzzSegmentHeader(f *testing.F) {
	b := goldenSegment()[:segmentHeaderBytes]
	f.Add(b)
	f.Add(b[:segmentHeaderUsed])
	f.Add(make([]byte, segmentHeaderBytes))
	newer := append([]byte(nil), b...)
	newer[8], newer[segmentHeaderCopy+8] = 9, 9
	f.Add(newer)
	f.Fuzz(func(t *testing.T, b []byte) {
		h, _, err := decodeSegmentHeader(b)
		if err != nil {
			require.Zero(t, h.id)
			return
		}
		require.LessOrEqual(t, h.size, int64(SegmentSizeMax))
		c := make([]byte, segmentHeaderBytes)
		h.encode(c)
		again, repaired, err := decodeSegmentHeader(c)
		require.NoError(t, err)
		require.False(t, repaired)
		require.Equal(t, h, again)
	})
}

func FuzzGroupHeader(f *testing.F) {
	b := goldenSegment()
	for off := segmentHeaderBytes; off < 5*vfs.Align; off += vfs.Align {
		f.Add(b[off:off+groupHeaderBytes], int64(off))
	}
	f.Add([]byte{}, int64(0))
	s := sealOf(0x1122334455667788)
	f.Fuzz(func(t *testing.T, b []byte, off int64) {
		h, ok := decodeGroupHeader(b, 7, s.group(off))
		if !ok {
			return
		}
		require.EqualValues(t, 7, h.segment)
		require.Less(t, h.durable, h.sequence)
		require.LessOrEqual(t, h.extent(), int64(SegmentSizeMax))
		c := make([]byte, groupHeaderBytes)
		h.encode(c, s.group(off))
		again, ok := decodeGroupHeader(c, 7, s.group(off))
		require.True(t, ok)
		require.Equal(t, h, again)
	})
}

// FuzzGroupRecords checks the walk over the records of a group whose header was believed.
func FuzzGroupRecords(f *testing.F) {
	b := goldenSegment()
	f.Add(b[segmentHeaderBytes:][:vfs.Align], uint64(7<<runShift), uint32(3), uint32(77))
	f.Add(b[3*vfs.Align:][:2*vfs.Align], uint64(7<<runShift+2), uint32(1), uint32(4820))
	f.Add(b[3*vfs.Align:][:100], uint64(7<<runShift+2), uint32(1), uint32(4820))
	f.Add([]byte{}, uint64(1), uint32(1<<31), uint32(1<<31))
	s := sealOf(0x1122334455667788)
	f.Fuzz(func(t *testing.T, data []byte, sequence uint64, records, payload uint32) {
		h := groupHeader{segment: 7, sequence: sequence, records: records, payload: payload % SegmentSizeMax}
		file := &segmentFile{id: 7, name: "x.jnl", seal: s}
		w := &walk{segments: []*segmentFile{file}, open: file, res: &Replayed{Whole: true}}
		inside := func() {
			for _, r := range w.refs {
				require.LessOrEqual(t, r.at+RecordOverhead+r.header.length, len(data))
				require.NotZero(t, r.header.kind)
			}
		}
		if w.check(data, h, s) {
			inside()
			require.Len(t, w.refs, int(records))
			return
		}
		w.salvageRecords(place{}, append([]byte(nil), data...), h)
		inside()
		good := 0
		for _, r := range w.refs {
			if !r.bad {
				good++
			}
		}
		require.True(t, good == int(records) || !w.res.Whole || len(w.res.Damage) > 0 || w.res.Repaired > 0,
			"not whole, nothing lost, nothing repaired")
	})
}

// FuzzReplay replays a directory of two segments of arbitrary bytes. It must end, without a panic, and what it returns must
// have been checked: any record has the bytes of the golden segment's or carries a CRC that a fuzzer does not guess.
func FuzzReplay(f *testing.F) {
	golden := trimZeros(goldenSegment()) // short seeds: the engine minimises what it finds byte by byte
	f.Add(golden, []byte{}, uint64(0), false)
	f.Add(golden, golden, uint64(7<<20), true)
	cut := append([]byte(nil), golden[:3*vfs.Align+100]...)
	f.Add(cut, golden[:vfs.Align], uint64(0), false)
	torn := append([]byte(nil), golden...)
	clear(torn[3*vfs.Align:][:512])
	f.Add(torn, make([]byte, 8*vfs.Align), uint64(1), false)
	noHeader := append([]byte(nil), golden...)
	clear(noHeader[:vfs.Align])
	f.Add(noHeader, golden, uint64(0), true)
	f.Fuzz(func(t *testing.T, a, b []byte, from uint64, start bool) {
		if len(a)+len(b) > 1<<20 {
			return
		}
		mem := memfs.New("/j/current")
		for name, content := range map[string][]byte{"0000000000000007.jnl": a, "0000000000000008.jnl": b} {
			f, err := mem.Open("/j/current/"+name, vfs.Mode{Write: true, Create: true})
			require.NoError(t, err)
			_, err = f.WriteAt(content, 0)
			require.NoError(t, err)
			require.NoError(t, f.Close())
		}
		j, err := Open(mem, "/j", smallOptions())
		if err != nil {
			require.ErrorIs(t, err, ErrFormatTooNew)
			return
		}
		last := Position(0)
		r, err := j.Replay(Position(from), func(r Record) error {
			require.GreaterOrEqual(t, r.Position, Position(from))
			require.GreaterOrEqual(t, r.Position, last)
			require.NotZero(t, r.Kind)
			last = r.Position
			return nil
		})
		if err == nil {
			require.Greater(t, r.End, last)
			if start && from < 1<<60 && r.End < 1<<60 {
				require.NoError(t, j.Start())
				require.GreaterOrEqual(t, j.Mark(), r.End)
			}
		}
		_ = j.Close()
	})
}

// FuzzDamagedDirectory damages a sound journal in a few places chosen by the input. Nothing wrong may come back, and what
// is missing must be accounted for, unless the damage took the groups that covered the others.
func FuzzDamagedDirectory(f *testing.F) {
	o := crashOptions(IODSync)
	mem, h := filled(f, o, 12)
	places := groupPlaces(f, mem, "/j")
	tail := places[len(places)-3:]
	d, err := readDirectory(mem, "/j")
	require.NoError(f, err)
	f.Add([]byte{0, 0, 16, 0, 1})
	f.Add([]byte{0, 0, 17, 3, 0, 1, 0, 33, 1, 2, 0, 1, 64, 2, 3})
	f.Add([]byte{0, 0, 16, 8, 1, 0, 0, 16, 9, 2, 0, 0, 16, 9, 3})
	f.Fuzz(func(t *testing.T, ops []byte) {
		c := mem.Clone()
		covered := true
		for len(ops) >= 5 {
			s := d.segments[int(ops[0])%len(d.segments)]
			off := (int64(ops[1])<<8 | int64(ops[2])) * 256 % (s.size - 8192)
			n := 1 << (ops[3] % 14)
			fill := make([]byte, n)
			switch kind := ops[4]; kind % 4 {
			case 0:
				for i := range fill {
					fill[i] = kind + byte(i)*13
				}
			case 1: // zeros
			case 2, 3: // other bytes of the file, aligned or not
				content, err := vfs.ReadFile(c, s.name)
				require.NoError(t, err)
				from := (int(off) + int(kind)*4096 + int(kind%4-2)*int(kind)) % (len(content) - n)
				fill = append(fill[:0], content[from:from+n]...)
			}
			overwrite(t, c, s.name, off, fill)
			for _, g := range tail {
				if g.file == s.name && off < g.off+g.header.extent() && off+int64(n) > g.off {
					covered = false
				}
			}
			if off < segmentHeaderBytes && s.name == tail[0].file {
				covered = false
			}
			ops = ops[5:]
		}
		if covered {
			_, _, err := h.account(t, c, o, "damaged")
			require.NoError(t, err)
			return
		}
		replayAll(t, c, "/j", o, 0)
	})
}

// FuzzFileName: a name is a file of ours in one spelling only, so that no two files of a directory are the same segment.
func FuzzFileName(f *testing.F) {
	for _, name := range []string{"0000000000000007.jnl", "ffffffffffffffff.zero", "0000000000000009.alloc", "000000000000000A.jnl", "7.jnl",
		"0000000000000007.jnl.tmp", "+000000000000007.jnl", "", ".jnl", "0000000000000007"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if id, suffix, ok := parseName(name); ok {
			require.Equal(t, "/j/current/"+name, fileName("/j", id, suffix))
		}
	})
}

// FuzzRecordHeader: what parses encodes to the same bytes, and one flipped bit of it is put right.
func FuzzRecordHeader(f *testing.F) {
	b := goldenSegment()
	f.Add(b[segmentHeaderBytes+groupHeaderBytes:][:RecordOverhead], uint64(7<<runShift), 64, uint16(0))
	f.Add(b[3*vfs.Align+groupHeaderBytes:][:RecordOverhead], uint64(7<<runShift+2), 64, uint16(159))
	f.Add([]byte{}, uint64(0), 0, uint16(3))
	s := sealOf(0x1122334455667788)
	f.Fuzz(func(t *testing.T, b []byte, sequence uint64, at int, bit uint16) {
		seal := s.record(sequence, at)
		h, ok := decodeRecordHeader(b, seal)
		if !ok {
			return
		}
		require.NotZero(t, h.kind)
		require.LessOrEqual(t, h.length, recordBodyMax)
		c := make([]byte, RecordOverhead)
		putRecordHeader(c, h.kind, h.tag, h.length, h.crc, seal)
		require.Equal(t, b[:RecordOverhead], c)
		i := int(bit) % (RecordOverhead * 8)
		c[i/8] ^= 1 << (i % 8)
		require.True(t, repairBit(c, seal))
		require.Equal(t, b[:RecordOverhead], c)
	})
}
