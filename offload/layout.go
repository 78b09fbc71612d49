package offload

import (
	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/offload/objstore"
)

// Sizes of cells and blocks.
const (
	CellBytesMin     = 6 << 20
	CellBytesMax     = 64 << 20
	CellBytesDefault = 8 << 20

	BlockBytesMin     = 16 << 10
	BlockBytesMax     = 4 << 20
	BlockBytesDefault = 256 << 10

	InlineBytesDefault = 64 << 10
	InlineBytesMax     = 1 << 20

	stripesMax     = objstore.PartsMax
	stripesPlanned = 9000 // above so many the cells are made larger
)

// blockRef says where a block lies, as the index of a manifest does.
type blockRef struct {
	first  ledger.EntryID // of a fill block: the entry that follows
	cell   uint32         // counted through all stripes
	number uint32         // among the blocks with entries
	offset uint32         // in its cell
	stored uint32         // bytes, header included
	raw    uint32
	crc    uint32
}

// stripe is k data cells and their m parity cells.
type stripe struct {
	lengths []uint32 // of the data cells; parity cells have the largest of them
	crcs    []uint32 // of all cells
}

// length is the stored length of one of the stripe's cells.
func (s *stripe) length(shard int) uint32 {
	if shard < len(s.lengths) {
		return s.lengths[shard]
	}
	var n uint32
	for _, l := range s.lengths {
		n = max(n, l)
	}
	return n
}

// longest is the length that all cells are extended to, with zeros that are never stored, before they are coded.
func (s *stripe) longest() uint32 { return s.length(len(s.lengths)) }

// shardSum is what a whole shard object measures.
type shardSum struct {
	length int64
	crc    uint32
}

// shardSums adds the cells of each shard up.
func shardSums(g Geometry, stripes []stripe) []shardSum {
	sums := make([]shardSum, g.Shards())
	for i := range stripes {
		for j := range sums {
			n := int64(stripes[i].length(j))
			sums[j].crc = crcCombine(sums[j].crc, stripes[i].crcs[j], n)
			sums[j].length += n
		}
	}
	return sums
}

// cellBytesFor returns the cell size for a ledger: the configured one, doubled until the ledger has a bounded number of stripes.
func cellBytesFor(configured int, g Geometry, length int64) int {
	u := configured
	for u < CellBytesMax && length/int64(u)/int64(g.Data) > stripesPlanned {
		u *= 2
	}
	return min(u, CellBytesMax)
}

// blockBytesFor returns the block size for a ledger: small ones get at least four blocks a data shard, so that they spread evenly.
func blockBytesFor(configured int, g Geometry, length int64) int {
	share := length / int64(4*g.Data)
	share += share / 16 // columns and digests are not in the ledger's length; without them there is a block too many
	return min(configured, max(BlockBytesMin, int(min(share, BlockBytesMax))))
}
