//go:build crash

package crash

import (
	"encoding/binary"
	"hash/fnv"
	"math/rand/v2"

	"github.com/binderylog/bindery/internal/digest"
	"github.com/binderylog/bindery/internal/ledger"
)

// content makes entry bodies. They depend on the seed, ledger and entry only, so that nothing needs to be kept to check
// them.
type content struct{ seed uint64 }

var seal = func() *digest.Digest {
	d, err := digest.New(ledger.DigestCRC32C, nil)
	if err != nil {
		panic(err)
	}
	return d
}()

func (c content) rng(ledgerID, entry int64) *rand.Rand {
	h := fnv.New64a()
	var b [24]byte
	binary.BigEndian.PutUint64(b[0:], c.seed)
	binary.BigEndian.PutUint64(b[8:], uint64(ledgerID))
	binary.BigEndian.PutUint64(b[16:], uint64(entry))
	_, _ = h.Write(b[:])
	return rand.New(rand.NewPCG(h.Sum64(), c.seed))
}

// size returns the payload size of an entry: mostly small, now and then large, sometimes nothing.
func (c content) size(ledgerID, entry int64) int {
	rng := c.rng(ledgerID, entry)
	switch p := rng.IntN(100); {
	case p < 3:
		return 0
	case p < 55:
		return rng.IntN(300)
	case p < 90:
		return rng.IntN(8 << 10)
	case p < 99:
		return rng.IntN(64 << 10)
	default:
		return rng.IntN(512 << 10)
	}
}

// body returns the whole body of an entry.
func (c content) body(ledgerID, entry int64) []byte {
	payload := make([]byte, c.size(ledgerID, entry))
	rng := c.rng(ledgerID, entry)
	i := 0
	for ; i+8 <= len(payload); i += 8 {
		binary.LittleEndian.PutUint64(payload[i:], rng.Uint64())
	}
	for ; i < len(payload); i++ {
		payload[i] = byte(rng.Uint64())
	}
	return seal.Seal(nil, ledgerID, entry, entry-1, entry*100, payload)
}

// key returns the master key of a ledger.
func (c content) key(ledgerID int64) []byte {
	k := digest.MasterKey(binary.BigEndian.AppendUint64(nil, c.seed^uint64(ledgerID)))
	return k[:]
}
