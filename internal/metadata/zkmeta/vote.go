package zkmeta

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/binderylog/bindery/internal/metadata"
)

// Votes implements metadata.SequenceVoter.
func (s *Store) Votes() bool { return s.o.Votes }

// CreateSequential implements metadata.SequenceVoter. A creation whose answer was lost is metadata.ErrUnknownOutcome: the
// caller looks for a node of its session before it tries again.
func (s *Store) CreateSequential(ctx context.Context, path string, value []byte, session metadata.Session) (string, error) {
	if err := checkPath(path); err != nil {
		return "", err
	}
	ctx, cancel, err := s.begin(ctx)
	if err != nil {
		return "", err
	}
	defer cancel()
	l, err := s.linkFor(ctx, metadata.Txn{Puts: []metadata.Put{{Key: path, Session: session}}})
	if err != nil {
		return "", err
	}
	for {
		key, err := await(ctx, s, func() (string, error) {
			return l.conn.Create(path, value, zk.FlagEphemeral|zk.FlagSequence, s.acl)
		})
		switch {
		case err == nil:
			return key, nil
		case errors.Is(err, zk.ErrNoNode):
			if err := l.makeDir(parentOf(path), s.acl); err != nil {
				return "", fmt.Errorf("%w: %w", metadata.ErrUnavailable, err)
			}
		case transient(err):
			l.noticed(err)
			return "", s.endOfTime(ctx, metadata.ErrUnknownOutcome, err)
		default:
			return "", wrapFinal(err)
		}
	}
}
