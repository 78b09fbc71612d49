//go:build !linux

package device

import (
	"context"
	"errors"
	"io"

	"github.com/binderylog/bindery/internal/vfs"
)

type nothing struct{}

func (nothing) Close() error { return nil }

func isReadOnly(error) bool                               { return false }
func isLocked(string) bool                                { return false }
func lockDisk(context.Context, string) (io.Closer, error) { return nothing{}, nil }
func exclusive(string) (io.Closer, error)                 { return nil, errors.ErrUnsupported }

func isInvalid(error) bool     { return false }
func directAlign(vfs.File) int { return 0 }
