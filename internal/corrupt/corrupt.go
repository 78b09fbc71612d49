// Package corrupt is the one way this program says that stored bytes are not what was written.
//
// Every reader of a file or of a metadata record reports damage as *Error, with the place, so that an
// operator can look at it and no caller can mistake it for absence. Damage is never turned into "not found"
// (design: promise 3).
//
// The package holds no state and starts no goroutine.
package corrupt

import (
	"errors"
	"fmt"
)

// Error names damaged bytes.
type Error struct {
	Path   string // file, or key of a metadata record
	Offset int64  // byte offset of the damaged structure in Path
	Kind   string // what was expected there, such as "journal group header"
	Err    error  // what is wrong with it
}

// New builds an Error.
func New(path string, offset int64, kind string, err error) *Error {
	return &Error{Path: path, Offset: offset, Kind: kind, Err: err}
}

// Errorf builds an Error whose cause is a formatted message.
func Errorf(path string, offset int64, kind, format string, args ...any) *Error {
	return New(path, offset, kind, fmt.Errorf(format, args...))
}

// Error implements error.
func (e *Error) Error() string {
	return fmt.Sprintf("corrupt %s in %s at offset %d: %v", e.Kind, e.Path, e.Offset, e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether err says that stored bytes are damaged.
func Is(err error) bool {
	var c *Error
	return errors.As(err, &c)
}
