package collect

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzParseHosts: no host of a list is an option of ssh, no directory one of iobench, and no file lies outside its directory.
func FuzzParseHosts(f *testing.F) {
	f.Add("b1 /data\n# x\nroot@b2 /a /b\n")
	f.Add("-o /x\n.. /y\n")
	f.Fuzz(func(t *testing.T, list string) {
		hosts, err := ParseHosts(strings.NewReader(list), nil)
		if err != nil {
			return
		}
		for _, h := range hosts {
			require.False(t, strings.HasPrefix(h.Name, "-"))
			require.Equal(t, "out", filepath.Dir(filepath.Join("out", h.fileName())))
			for _, d := range h.Dirs {
				require.True(t, strings.HasPrefix(d, "/"))
			}
		}
	})
}
