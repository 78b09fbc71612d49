package offload

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/binderylog/bindery/internal/ledger"
)

const (
	dataKeySize   = 32 // AES-256
	sealNonceSize = 12
	sealEpochSize = 4
	sealTagSize   = 16
	sealOverhead  = sealEpochSize + sealTagSize
)

// ErrNoKey is returned for an encrypted ledger when no key source is configured.
var ErrNoKey = errors.New("offload: the ledger is encrypted; set the key source that it was written with")

// sealer encrypts and decrypts the bodies of blocks with an attempt's data key.
//
//	stored body   epoch (4) | AES-256-GCM of the body | tag (16)
//	nonce         epoch (4) | block number (8)
//	authenticated ledger (8) | attempt (16) | block number (8)
//
// Whatever is encoded again after a restart is sealed under an epoch drawn at random, so no nonce is used twice: counting on from the last
// one would, if the intents were put back from an older copy.
type sealer struct {
	aead  cipher.AEAD
	aad   [24]byte
	epoch uint32 // for seal
}

// newEpoch draws an epoch for a run that goes on after one with another.
func newEpoch(before uint32) uint32 {
	var b [sealEpochSize]byte
	for {
		_, _ = rand.Read(b[:])                                         // never fails
		if e := binary.BigEndian.Uint32(b[:]); e != before && e != 0 { // 0 is the first run's
			return e
		}
	}
}

func newSealer(key []byte, l ledger.ID, id AttemptID, epoch uint32) (*sealer, error) {
	if len(key) != dataKeySize {
		return nil, fmt.Errorf("data key of %d bytes, not %d", len(key), dataKeySize)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	s := &sealer{aead: aead, epoch: epoch}
	binary.BigEndian.PutUint64(s.aad[:], uint64(l)) //nolint:gosec // ids are not negative
	copy(s.aad[8:], id[:])
	return s, nil
}

func (s *sealer) nonce(epoch uint32, number uint64) [sealNonceSize]byte {
	var n [sealNonceSize]byte
	binary.BigEndian.PutUint32(n[:], epoch)
	binary.BigEndian.PutUint64(n[4:], number)
	return n
}

func (s *sealer) seal(dst, body []byte, number uint64) []byte {
	n := s.nonce(s.epoch, number)
	dst = binary.BigEndian.AppendUint32(dst, s.epoch)
	return s.aead.Seal(dst, n[:], body, binary.BigEndian.AppendUint64(s.aad[:len(s.aad):len(s.aad)], number))
}

func (s *sealer) open(stored []byte, number uint64) ([]byte, error) {
	if len(stored) < sealOverhead {
		return nil, fmt.Errorf("encrypted body of %d bytes", len(stored))
	}
	n := s.nonce(binary.BigEndian.Uint32(stored), number)
	body, err := s.aead.Open(nil, n[:], stored[sealEpochSize:], binary.BigEndian.AppendUint64(s.aad[:len(s.aad):len(s.aad)], number))
	if err != nil {
		return nil, fmt.Errorf("decrypt: %w: the key is not the one that it was written with", err)
	}
	return body, nil
}
