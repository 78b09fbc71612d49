package main

import (
	"context"
	"errors"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"

	"github.com/binderylog/bindery/bookie"
	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/internal/metadata/driver"
	"github.com/binderylog/bindery/internal/usage"
	"github.com/binderylog/bindery/ledgerclient"
)

// Exit codes of every command but run and standalone.
const (
	exitOK       = 0
	exitFailed   = 1
	exitUsage    = 2
	exitRefused  = 3 // unsafe, or not in this version
	exitPartial  = 4 // partly done
	exitMetadata = 4 // the metadata store could not be reached, as of run and standalone
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

// exitIO is exit for what a disk or a port refuses, of run and standalone. A missing permission is a matter of the
// configuration there: a service manager must not try it again and again.
func exitIO(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return exit(bookie.ExitConfig, err)
	}
	return exit(bookie.ExitIO, err)
}

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
	if errors.Is(err, metadata.ErrUnavailable) || errors.Is(err, ledgerclient.ErrMetadata) {
		return exitMetadata
	}
	return exitFailed
}

// exitStore is exit for what opening a metadata store returned: its URI is wrong, or nothing answers there.
func exitStore(err error) error {
	switch {
	case errors.Is(err, driver.ErrURI):
		return exit(exitUsage, err)
	case errors.Is(err, context.Canceled):
		return err
	}
	return exit(exitMetadata, err)
}

// usageError gives wrong arguments, which cobra only counts, their exit code, and says which is missing or too many and
// how the command is used.
func usageError(c *cobra.Command, err error) error {
	var e *exitError
	if errors.As(err, &e) {
		return err
	}
	if usage.FromCobra(err) {
		return exit(usageCode(c), usage.Explain(err, c.Use, c.UseLine(), c.Flags().Args()))
	}
	for _, start := range []string{"unknown flag", "unknown shorthand", "required flag", "invalid argument"} {
		if strings.HasPrefix(err.Error(), start) {
			return exit(usageCode(c), usage.Line(err, c.UseLine()))
		}
	}
	return err
}

// usageCode is the exit code for wrong flags and arguments: that of a bad configuration for the commands that a service
// manager starts, which must not start them again and again.
func usageCode(c *cobra.Command) int {
	if path := c.CommandPath(); path == "bindery run" || path == "bindery standalone" {
		return bookie.ExitConfig
	}
	return exitUsage
}
