package bookie

import (
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestExitCodeOfAMissingPermission(t *testing.T) {
	for _, err := range []error{
		exitErrorf(ExitIO, "lock: %w", syscall.EACCES), withExit(ExitIO, fmt.Errorf("mkdir: %w", syscall.EPERM)),
	} {
		require.Equal(t, ExitConfig, exitCodeOf(err))
	}
	require.Equal(t, ExitIO, exitCodeOf(withExit(ExitIO, syscall.EIO)))
	require.Equal(t, ExitRegistration, exitCodeOf(withExit(ExitRegistration, syscall.EACCES)))
	require.Zero(t, exitCodeOf(errors.New("plain")))
}
