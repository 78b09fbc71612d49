package engine

import (
	"encoding/binary"
	"math/rand/v2"

	"github.com/binderylog/bindery/internal/vfs"
)

// Payload makes what is written: random bytes, which no disk can compress, with a number in each block that was in none
// before, so that none can be recognised as a copy either.
type Payload struct {
	data  []byte
	block uint64
	at    int
}

// payloadBytes is how much random data a payload draws from; the numbers in the blocks make the rest different.
const payloadBytes = MiB

// NewPayload returns a payload for writes of up to n bytes.
func NewPayload(seed uint64, n int) *Payload {
	size := max(payloadBytes, 2*n)
	p := &Payload{data: vfs.AlignedBytes((size + vfs.Align - 1) / vfs.Align * vfs.Align)}
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	_, _ = rand.NewChaCha8(key).Read(p.data) // never fails
	p.block = seed << 40
	return p
}

// Next returns n bytes that were not returned before. They are valid until the next call.
func (p *Payload) Next(n int) []byte {
	if p.at+n > len(p.data) {
		p.at = 0
	}
	b := p.data[p.at : p.at+n]
	p.at += (n + vfs.Align - 1) / vfs.Align * vfs.Align
	const sector = 512 // a disk may look for copies in units as small as this
	for off := 0; off+8 <= n; off += sector {
		p.block++
		binary.LittleEndian.PutUint64(b[off:], p.block)
	}
	return b
}
