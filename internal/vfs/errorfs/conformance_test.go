package errorfs_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/binderylog/bindery/internal/vfs"
	"github.com/binderylog/bindery/internal/vfs/errorfs"
	"github.com/binderylog/bindery/internal/vfs/memfs"
	"github.com/binderylog/bindery/internal/vfs/vfstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	for name, inside := range map[string]func(t *testing.T) (vfs.FS, string){
		"memfs": func(*testing.T) (vfs.FS, string) { return memfs.New("/data"), "/data" },
		"os":    func(t *testing.T) (vfs.FS, string) { return vfs.OS(), t.TempDir() },
	} {
		t.Run(name, func(t *testing.T) {
			vfstest.Run(t, func(t *testing.T) (vfs.FS, string) {
				fsys, dir := inside(t)
				return errorfs.Wrap(fsys, errorfs.None()), dir
			})
		})
	}
}
