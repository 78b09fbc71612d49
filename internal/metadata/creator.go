package metadata

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
)

// creator lends creates a token that they depend on: an ephemeral key with a name that is never used again. A create whose
// answer was lost can be called off for good by removing the token: what has not landed by then never does.
type creator struct {
	store Store
	dir   string

	turn  chan struct{} // held across the store's calls that make a token
	token creatorToken  // the present one; guarded by turn
}

// creatorToken is one token. The zero value is none.
type creatorToken struct {
	check   Check
	session Session
}

func newCreator(s Store, root string) *creator {
	return &creator{store: s, dir: "/bindery" + root + "/creators/", turn: make(chan struct{}, 1)}
}

// lend returns the condition that a token is there, making one if there is none.
func (c *creator) lend(ctx context.Context) (Check, error) {
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return Check{}, fmt.Errorf("%w: %w", ErrUnavailable, ctx.Err())
	}
	if s := c.token.session; s != nil {
		select {
		case <-s.Done():
		default:
			return c.token.check, nil
		}
	}
	for pause := newBackoff(); ; {
		s, err := c.store.Session(ctx)
		if err != nil {
			return Check{}, err
		}
		key := c.dir + rand.Text()
		r, err := c.store.Txn(ctx, Txn{Puts: []Put{{Key: key, Version: Absent, Session: s}}})
		if err == nil {
			c.token = creatorToken{check: Check{Key: key, Version: r.Versions[0]}, session: s}
			return c.token.check, nil
		}
		if !errors.Is(err, ErrUnknownOutcome) && !errors.Is(err, ErrSessionLost) { // a key left behind goes with the session
			return Check{}, err
		}
		if werr := pause.wait(ctx); werr != nil {
			return Check{}, fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
	}
}

// forget makes the next lend make another token than k.
func (c *creator) forget(k Check) {
	c.turn <- struct{}{} // whoever holds it returns by the end of the store's time-out
	defer func() { <-c.turn }()
	if c.token.check == k {
		c.token = creatorToken{}
	}
}

// callOff removes a token: no create that depends on it happens from now on. An error means that one may still.
func (c *creator) callOff(ctx context.Context, k Check) error {
	c.forget(k)
	for pause := newBackoff(); ; {
		err := c.store.Delete(ctx, k.Key, Any)
		if err == nil || errors.Is(err, ErrNotFound) {
			return nil
		}
		if !errors.Is(err, ErrUnknownOutcome) {
			return err
		}
		if werr := pause.wait(ctx); werr != nil {
			return err
		}
	}
}
