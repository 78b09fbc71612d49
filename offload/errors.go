package offload

import (
	"errors"
	"fmt"
	"strings"

	"github.com/binderylog/bindery/internal/ledger"
)

// Errors that callers test for.
var (
	// ErrVersion is returned for something that a newer version wrote and this one must not guess at.
	ErrVersion = errors.New("offload: written by a newer version")
	// ErrUnavailable is returned when fewer targets than are needed answered. Try again; it never means that an entry is absent.
	ErrUnavailable = errors.New("offload: too few targets can be reached")
	// ErrNotOffloaded is returned when a ledger has no copy in the tier that may be read.
	ErrNotOffloaded = errors.New("offload: the ledger is not in the tier")
	// ErrNoEntry is returned for an entry behind the ledger's end.
	ErrNoEntry = errors.New("offload: no such entry")
)

// onTarget and ofLedger add to an error what it is about, unless it begins with that already.
func onTarget(target string, err error) error { return about(theTarget(target), err) }

func ofLedger(id ledger.ID, err error) error { return about(theLedger(id), err) }

func theTarget(id string) string { return "target " + id + ": " }

func theLedger(id ledger.ID) string { return fmt.Sprintf("ledger %d: ", id) }

func about(what string, err error) error {
	if strings.HasPrefix(err.Error(), what) {
		return err
	}
	return fmt.Errorf("%s%w", what, err)
}

// besides is an error's text where what it is about has been named already.
func besides(what string, err error) string { return strings.TrimPrefix(err.Error(), what) }
