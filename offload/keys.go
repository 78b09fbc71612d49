package offload

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"fmt"
)

// KeySource wraps the data keys of encrypted ledgers under keys of the operator's. Whoever loses those loses the data.
type KeySource interface {
	// Wrap encrypts a data key under the current key.
	Wrap(ctx context.Context, dataKey []byte) (WrappedKey, error)
	// Unwrap decrypts one. A key id that the source does not have is an error that names it.
	Unwrap(ctx context.Context, k WrappedKey) ([]byte, error)
}

// keyAlgorithm is how Keys wraps: nonce (12), then AES-256-GCM with the key id authenticated.
const keyAlgorithm = "aes-256-gcm"

// Keys is a KeySource over keys that are in memory, read from a file or from the environment by whoever makes it.
type Keys struct {
	Current string            // id of the key that new ledgers are written under
	ByID    map[string][]byte // 32 bytes each
}

func (k *Keys) aead(id string) (cipher.AEAD, error) {
	key, ok := k.ByID[id]
	if !ok {
		return nil, fmt.Errorf("offload: no key with id %q; add it to the key source: ledgers were written under it", id)
	}
	if len(key) != dataKeySize {
		return nil, fmt.Errorf("offload: key %q has %d bytes, not %d", id, len(key), dataKeySize)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// Wrap implements KeySource.
func (k *Keys) Wrap(_ context.Context, dataKey []byte) (WrappedKey, error) {
	aead, err := k.aead(k.Current)
	if err != nil {
		return WrappedKey{}, err
	}
	nonce := make([]byte, aead.NonceSize(), aead.NonceSize()+len(dataKey)+aead.Overhead())
	_, _ = rand.Read(nonce) // never fails
	return WrappedKey{KeyID: k.Current, Algorithm: keyAlgorithm, Key: aead.Seal(nonce, nonce, dataKey, []byte(k.Current))}, nil
}

// Unwrap implements KeySource.
func (k *Keys) Unwrap(_ context.Context, w WrappedKey) ([]byte, error) {
	if w.Algorithm != keyAlgorithm {
		return nil, fmt.Errorf("offload: data key wrapped with %q, which this key source does not know", w.Algorithm)
	}
	aead, err := k.aead(w.KeyID)
	if err != nil {
		return nil, err
	}
	n := aead.NonceSize()
	if len(w.Key) < n {
		return nil, fmt.Errorf("offload: wrapped data key of %d bytes", len(w.Key))
	}
	key, err := aead.Open(nil, w.Key[:n], w.Key[n:], []byte(w.KeyID))
	if err != nil {
		return nil, fmt.Errorf("offload: key %q is not the one that the ledger was written under: %w", w.KeyID, err)
	}
	return key, nil
}

// unwrap returns the data key of a ledger, nil if it is not encrypted.
func unwrap(ctx context.Context, source KeySource, k *WrappedKey) ([]byte, error) {
	switch {
	case k == nil:
		return nil, nil
	case source == nil:
		return nil, fmt.Errorf("%w (key id %q)", ErrNoKey, k.KeyID)
	}
	return source.Unwrap(ctx, *k)
}
