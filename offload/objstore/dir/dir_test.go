package dir

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/binderylog/bindery/internal/vfs"
	"github.com/binderylog/bindery/internal/vfs/memfs"
	"github.com/binderylog/bindery/offload/objstore"
	"github.com/binderylog/bindery/offload/objstore/objstoretest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestStatement39Dir(t *testing.T) {
	for name, open := range map[string]func(t *testing.T) (vfs.FS, string){
		"os":    func(t *testing.T) (vfs.FS, string) { return vfs.OS(), t.TempDir() + "/t1" },
		"memfs": func(*testing.T) (vfs.FS, string) { return memfs.New("/data"), "/data/t1" },
	} {
		t.Run(name, func(t *testing.T) {
			objstoretest.Run(t, func(t *testing.T) objstore.Store {
				fsys, dir := open(t)
				s, err := Open(fsys, dir, Options{Create: true})
				if err != nil {
					t.Fatal(err)
				}
				return s
			})
		})
	}
}
