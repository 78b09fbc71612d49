//go:build !linux

package device

import "github.com/binderylog/bindery/internal/vfs"

// Files is the file system of the operating system, with what only measuring needs.
type Files struct{ vfs.FS }

// OS returns it.
func OS() Files { return Files{vfs.OS()} }
