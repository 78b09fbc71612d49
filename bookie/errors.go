package bookie

import (
	"errors"
	"fmt"
	"io/fs"
)

// Exit codes of the process that runs a bookie, by what stopped it.
const (
	ExitConfig       = 1  // bad configuration, missing directory, or one without the permissions that are needed
	ExitIO           = 2  // port in use, disk error
	ExitRegistration = 4  // the metadata store refused or could not be reached
	ExitIdentity     = 10 // the directories belong to another bookie, cluster or time
	ExitLocked       = 11 // a directory is locked, missing or not prepared
	ExitFormat       = 12 // a directory was written by a newer version, or by another engine
)

// ExitError is a failure to start, or to go on, with the code that the process should end with.
type ExitError struct {
	Code int
	Err  error
}

// Error implements error.
func (e *ExitError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *ExitError) Unwrap() error { return e.Err }

func exitErrorf(code int, format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	return &ExitError{Code: exitCodeFor(code, err), Err: err}
}

// exitCodeFor makes what fails for want of a permission a matter of the configuration: no restart helps it.
func exitCodeFor(code int, err error) int {
	if code == ExitIO && errors.Is(err, fs.ErrPermission) {
		return ExitConfig
	}
	return code
}

// withExit gives err the exit code unless it carries one already.
func withExit(code int, err error) error {
	var e *ExitError
	if err == nil || errors.As(err, &e) {
		return err
	}
	return &ExitError{Code: exitCodeFor(code, err), Err: err}
}

// exitCodeOf returns the exit code that err carries, 0 for none.
func exitCodeOf(err error) int {
	var e *ExitError
	if errors.As(err, &e) {
		return e.Code
	}
	return 0
}

// Errors that callers test for.
var (
	// ErrStopped is returned by calls to a bookie that is stopping or has stopped.
	ErrStopped = errors.New("the bookie has stopped")
	// ErrForcedReadOnly is returned when the bookie should become writable although the configuration says read-only.
	ErrForcedReadOnly = errors.New("the bookie is read-only by configuration; start it without --read-only")
)
