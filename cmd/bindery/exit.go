package main

import (
	"errors"
	"strings"
)

// Exit codes of every command but run and standalone.
const (
	exitOK       = 0
	exitFailed   = 1
	exitUsage    = 2
	exitRefused  = 3 // unsafe, or not in this version
	exitPartial  = 4
	exitFindings = 5 // a check ran to its end and found something
)

// exitError gives an error the exit code that the process ends with. A nil err means that the command has already
// reported everything.
type exitError struct {
	code int
	err  error
}

// exit wraps err so that the process ends with code.
func exit(code int, err error) error { return &exitError{code: code, err: err} }

// Error implements error.
func (e *exitError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

// Unwrap returns the cause.
func (e *exitError) Unwrap() error { return e.err }

// exitCode is the code for an error that a command returned. Cobra reports wrong arguments as plain errors; those it
// words in a way of its own are usage errors.
func exitCode(err error) int {
	var e *exitError
	if errors.As(err, &e) {
		return e.code
	}
	for _, start := range []string{"accepts ", "requires ", "unknown command", "unknown flag", "unknown shorthand", "required flag", "invalid argument"} {
		if strings.HasPrefix(err.Error(), start) {
			return exitUsage
		}
	}
	return exitFailed
}
