package objstore

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
)

// SamePlaces finds stores that have the same objects under two ids, such as one server with two names: a small object is put into each store
// and asked for in those behind it. It returns an error for each pair. Stores that do not answer are passed over: CheckTarget says why.
func SamePlaces(ctx context.Context, stores []*Target) (pairs []error) {
	var random [8]byte
	_, _ = rand.Read(random[:]) // does not fail
	for i, s := range stores {
		key := fmt.Sprintf("%s%s/same-%d", checkPrefix, hex.EncodeToString(random[:]), i)
		try, done := context.WithTimeout(ctx, checkCleanup)
		if _, err := s.in.Put(try, key, NewBody(canary(16)), PutOptions{}); err == nil {
			for _, other := range stores[i+1:] {
				if _, err := other.in.Head(try, key); err == nil {
					pairs = append(pairs, fmt.Errorf("targets %s and %s are the same place: what is removed from one would be gone from both; take one of them out", s.ID(), other.ID()))
				}
			}
		}
		done()
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), checkCleanup)
		_ = s.in.Delete(clean, key) // a key that may not delete leaves it, as the check's other objects
		cancel()
	}
	return pairs
}
