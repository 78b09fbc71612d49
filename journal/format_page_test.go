package journal

import (
	"encoding/binary"
	"hash/crc32"
	"math/bits"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestFormatPage reads the golden segment with nothing but what docs/formats/journal.md says: every byte of it is accounted
// for. It shares no code with the package; a change that breaks it breaks the page too.
func TestFormatPage(t *testing.T) {
	file, err := os.ReadFile(filepath.Join("testdata", "segment-v1.jnl"))
	require.NoError(t, err)
	file = append(file, make([]byte, 65536-len(file))...)
	le, crcs := binary.LittleEndian, crc32.MakeTable(crc32.Castagnoli)
	zero := func(from, to int) {
		t.Helper()
		for i := from; i < to; i++ {
			require.Zero(t, file[i], "byte %d", i)
		}
	}

	// Segment header: two copies.
	for _, at := range []int{0, 2048} {
		h := file[at:]
		require.Equal(t, "BNDRYJNL", string(h[:8]))
		require.EqualValues(t, 1, le.Uint16(h[8:]), "version")
		require.EqualValues(t, 1|2, le.Uint16(h[10:]), "fresh, zeroed")
		zero(at+12, at+16)
		require.EqualValues(t, 7, le.Uint64(h[16:]), "segment id")
		require.EqualValues(t, 0x1122334455667788, le.Uint64(h[24:]), "salt")
		require.EqualValues(t, 65536, le.Uint64(h[32:]), "size")
		require.EqualValues(t, 7<<20, le.Uint64(h[40:]), "first")
		require.EqualValues(t, 5, le.Uint64(h[48:]), "previous")
		require.EqualValues(t, 5<<20+41, le.Uint64(h[56:]), "previous last")
		require.EqualValues(t, 1_700_000_000_000_000_000, le.Uint64(h[64:]), "created")
		require.Equal(t, crc32.Checksum(h[:72], crcs), le.Uint32(h[72:]))
		zero(at+76, at+2048)
	}

	// Seeds and mask: one step of splitmix64 from the salt.
	z := uint64(0x1122334455667788) + 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	z ^= z >> 31
	seed, mask := uint32(z), uint32(z>>32)
	hi32 := func(a, b uint64) uint32 {
		_, low := bits.Mul64(a, b) // modulo 2^64
		return uint32(low >> 32)
	}

	// Groups, at multiples of 4,096, without a gap.
	wantBodies := [][]int{{5, 0, 12}, {}, {4800}}
	at := 4096
	for i, bodies := range wantBodies {
		g := file[at:]
		require.Equal(t, "BNJR", string(g[:4]))
		require.EqualValues(t, 1, g[4], "version")
		zero(at+5, at+8)
		require.EqualValues(t, 7, le.Uint64(g[8:]), "segment id")
		sequence := le.Uint64(g[16:])
		require.EqualValues(t, 7<<20+i, sequence)
		require.EqualValues(t, []uint64{5<<20 + 41, 7 << 20, 7<<20 + 1}[i], le.Uint64(g[24:]), "S")
		require.EqualValues(t, len(bodies), le.Uint32(g[32:]), "records")
		length := int(le.Uint32(g[36:]))
		require.EqualValues(t, 1_700_000_000_000_000_123, le.Uint64(g[40:]), "written")
		zero(at+48, at+60)
		require.Equal(t, crc32.Update(seed^hi32(uint64(at), 0x9fb21c651e98df25), crcs, g[:60]), le.Uint32(g[60:]))

		p := 64
		for k, n := range bodies {
			r := g[p:]
			require.EqualValues(t, n, le.Uint32(r)&0xffffff, "length")
			require.EqualValues(t, k+1, le.Uint32(r)>>24, "kind")
			require.EqualValues(t, 1000+k, le.Uint64(r[4:]), "tag")
			require.Equal(t, crc32.Checksum(r[20:20+n], crcs)^mask, le.Uint32(r[12:]))
			require.Equal(t, crc32.Update(seed^hi32(sequence<<24^uint64(p), 0xd6e8feb86659fd93), crcs, r[:16]), le.Uint32(r[16:]))
			p += 20 + n
		}
		require.Equal(t, 64+length, p)
		end := (at + p + 4095) / 4096 * 4096
		zero(at+p, end)
		at = end
	}
	zero(at, len(file))
}
