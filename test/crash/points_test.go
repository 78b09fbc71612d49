package crash

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const root = "../.."

var (
	pointInTable  = regexp.MustCompile("(?m)^\\| `([a-z]+(?:[.-][a-z0-9-]+)+)` \\|")
	pointInSource = regexp.MustCompile(`invariant\.CrashPoint\("([^"]+)"\)`)
	// dynamicPoint finds calls whose name the table could not be compared with.
	dynamicPoint = regexp.MustCompile(`invariant\.CrashPoint\([^"]`)
)

// listedPoints returns the names of docs/CRASHPOINTS.md, in order.
func listedPoints(t testing.TB) []string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(root, "docs", "CRASHPOINTS.md"))
	require.NoError(t, err)
	var names []string
	for _, m := range pointInTable.FindAllStringSubmatch(string(page), -1) {
		names = append(names, m[1])
	}
	require.NotEmpty(t, names)
	return names
}

// usedPoints returns the points of the source with the file each is in.
func usedPoints(t testing.TB) map[string]string {
	t.Helper()
	used := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "invariant"):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range pointInSource.FindAllStringSubmatch(string(source), -1) {
			used[m[1]] = strings.TrimPrefix(path, root+"/")
		}
		if dynamicPoint.Match(source) {
			t.Errorf("%s: a crash point's name must be a literal", path)
		}
		return nil
	})
	require.NoError(t, err)
	return used
}

func TestPointsAreListed(t *testing.T) {
	listed := listedPoints(t)
	sorted := slices.Sorted(slices.Values(listed))
	require.Equal(t, slices.Compact(slices.Clone(sorted)), sorted, "a name is listed twice")
	used := usedPoints(t)
	for name, path := range used {
		if !slices.Contains(listed, name) {
			t.Errorf("%s (%s) has no row in docs/CRASHPOINTS.md", name, path)
		}
	}
	for _, name := range listed {
		if used[name] == "" {
			t.Errorf("%s is listed in docs/CRASHPOINTS.md and not in the source", name)
		}
	}
}
