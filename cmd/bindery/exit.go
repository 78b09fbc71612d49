package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/binderylog/bindery/bookie"
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

// exitCode is the code for an error that a command returned.
func exitCode(err error) int {
	var e *exitError
	if errors.As(err, &e) {
		return e.code
	}
	return exitFailed
}

// usageError gives wrong flags and arguments their exit code: that of a bad configuration for the commands that a service
// manager starts, which must not start them again and again. Cobra reports wrong arguments as plain errors, worded in a
// way of its own, that do not say which arguments there should be.
func usageError(c *cobra.Command, err error) error {
	var e *exitError
	usage := errors.As(err, &e) && e.code == exitUsage
	if e == nil {
		for _, start := range []string{"accepts ", "requires ", "unknown command", "unknown flag", "unknown shorthand", "required flag", "invalid argument"} {
			if strings.HasPrefix(err.Error(), start) {
				usage = true
				err = exit(exitUsage, fmt.Errorf("%w (usage: %s)", err, c.UseLine()))
				break
			}
		}
	}
	if usage && (c.Name() == "run" || c.Name() == "standalone") && !c.Parent().HasParent() {
		err = exit(bookie.ExitConfig, err)
	}
	return err
}
