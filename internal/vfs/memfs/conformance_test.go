package memfs_test

import (
	"testing"

	"github.com/binderylog/bindery/internal/vfs"
	"github.com/binderylog/bindery/internal/vfs/memfs"
	"github.com/binderylog/bindery/internal/vfs/vfstest"
)

func TestConformance(t *testing.T) {
	vfstest.Run(t, func(*testing.T) (vfs.FS, string) { return memfs.New("/data"), "/data" })
}
