package offload

import "hash/crc32"

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func crcUpdate(crc uint32, b []byte) uint32 { return crc32.Update(crc, castagnoli, b) }

// crcCombine returns the CRC32C of a followed by b, of whose bytes only the checksums and b's length are known: appending
// a zero bit is linear, so b's length in zero bytes is applied to a's checksum by repeated squaring.
func crcCombine(a, b uint32, lenB int64) uint32 {
	if lenB <= 0 {
		return a
	}
	var odd, even crcMatrix
	odd[0] = crc32.Castagnoli
	for i := 1; i < 32; i++ {
		odd[i] = 1 << (i - 1)
	}
	even.square(&odd) // two zero bits
	odd.square(&even) // four
	for {
		even.square(&odd)
		if lenB&1 != 0 {
			a = even.times(a)
		}
		if lenB >>= 1; lenB == 0 {
			return a ^ b
		}
		odd.square(&even)
		if lenB&1 != 0 {
			a = odd.times(a)
		}
		if lenB >>= 1; lenB == 0 {
			return a ^ b
		}
	}
}

// crcMatrix is a linear map of checksums, by columns.
type crcMatrix [32]uint32

func (m *crcMatrix) times(v uint32) uint32 {
	var sum uint32
	for i := 0; v != 0; i, v = i+1, v>>1 {
		if v&1 != 0 {
			sum ^= m[i]
		}
	}
	return sum
}

func (m *crcMatrix) square(of *crcMatrix) {
	for i := range m {
		m[i] = of.times(of[i])
	}
}
