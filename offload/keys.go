package offload

import (
	"bufio"
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// KeyError is returned for an encrypted ledger whose data key can not be had.
type KeyError struct {
	KeyID string // that the ledger was written under
	Err   error
}

// Error implements error.
func (e *KeyError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *KeyError) Unwrap() error { return e.Err }

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

// keysMax bounds how many keys ParseKeys takes.
const keysMax = 1000

// ParseKeys reads lines of the form "id = key", the key being 32 bytes in base64; commas separate as lines do, and what follows a #
// is left out. No error holds anything of a key.
func ParseKeys(text []byte) (*Keys, error) {
	k := &Keys{ByID: map[string][]byte{}}
	lines := bufio.NewScanner(bytes.NewReader(bytes.ReplaceAll(text, []byte(","), []byte("\n"))))
	for n := 1; lines.Scan(); n++ {
		line, _, _ := strings.Cut(lines.Text(), "#")
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		id, value, found := strings.Cut(line, "=")
		id = strings.TrimSpace(id)
		key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(value))
		switch {
		case !found || id == "" || len(id) > keyIDMax:
			return nil, fmt.Errorf("line %d is not `id = key`, the id of 1 to %d bytes", n, keyIDMax)
		case err != nil || len(key) != dataKeySize:
			return nil, fmt.Errorf("line %d: key %q is not %d bytes in base64; `openssl rand -base64 %d` makes one", n, id, dataKeySize, dataKeySize)
		case k.ByID[id] != nil:
			return nil, fmt.Errorf("line %d: key %q stands there twice", n, id)
		case len(k.ByID) == keysMax:
			return nil, fmt.Errorf("more than %d keys", keysMax)
		}
		k.ByID[id] = key
	}
	if err := lines.Err(); err != nil {
		return nil, errors.New("a line is too long")
	}
	if len(k.ByID) == 0 {
		return nil, errors.New("there is no key")
	}
	return k, nil
}

// Choose sets the key that new ledgers are written under; "" is the only one there is.
func (k *Keys) Choose(id string) error {
	ids := strings.Join(slices.Sorted(maps.Keys(k.ByID)), ", ")
	switch {
	case id == "" && len(k.ByID) == 1:
		k.Current = ids
		return nil
	case id == "":
		return fmt.Errorf("there are several keys (%s): name the one that new ledgers are written under", ids)
	case k.ByID[id] == nil:
		return fmt.Errorf("there is no key %q; there are: %s", id, ids)
	}
	k.Current = id
	return nil
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
		return nil, &KeyError{k.KeyID, fmt.Errorf("%w (key id %q)", ErrNoKey, k.KeyID)}
	}
	key, err := source.Unwrap(ctx, *k)
	if err != nil {
		return nil, &KeyError{k.KeyID, err}
	}
	return key, nil
}
