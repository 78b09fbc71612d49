package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const fileLinesMax = 1200

// pkg is what the rules look at in one directory.
type pkg struct {
	dir     string // relative to the root, with slashes
	files   []file
	imports []edge
}

type file struct {
	path      string
	test      bool
	generated bool
	lines     int
	doc       string
	name      string // of the package
}

type edge struct {
	path string // import path
	file string
	test bool
}

func root(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			t.Fatal("no go.mod above the test")
		}
		dir = parent
	}
}

// packages parses the imports and comments of every Go file of the module. Directories with a go.mod of their own,
// test data and hidden directories are left out.
func packages(t *testing.T) []pkg {
	t.Helper()
	base := root(t)
	byDir := map[string]*pkg{}
	var order []string
	err := filepath.WalkDir(base, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			if path == base {
				return nil
			}
			if strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") || name == "testdata" || name == "bin" || name == "bindery-data" {
				return filepath.SkipDir
			}
			if _, err := os.Stat(filepath.Join(path, "go.mod")); err == nil {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || strings.HasPrefix(name, ".") {
			return nil
		}
		rel, err := filepath.Rel(base, filepath.Dir(path))
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		p := byDir[rel]
		if p == nil {
			p = &pkg{dir: rel}
			byDir[rel] = p
			order = append(order, rel)
		}
		return addFile(p, base, path)
	})
	if err != nil {
		t.Fatal(err)
	}
	out := make([]pkg, 0, len(order))
	for _, dir := range order {
		out = append(out, *byDir[dir])
	}
	return out
}

func addFile(p *pkg, base, path string) error {
	src, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	rel, err := filepath.Rel(base, path)
	if err != nil {
		return err
	}
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, path, src, parser.ImportsOnly|parser.ParseComments)
	if err != nil {
		return err
	}
	fl := file{
		path:      filepath.ToSlash(rel),
		test:      strings.HasSuffix(path, "_test.go"),
		generated: ast.IsGenerated(f),
		lines:     strings.Count(string(src), "\n"),
		doc:       f.Doc.Text(),
		name:      f.Name.Name,
	}
	p.files = append(p.files, fl)
	for _, spec := range f.Imports {
		to, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return err
		}
		p.imports = append(p.imports, edge{path: to, file: fl.path, test: fl.test})
	}
	return nil
}

func TestEveryPackageHasOneDocComment(t *testing.T) {
	for _, p := range packages(t) {
		var docs []string
		code := false
		for _, f := range p.files {
			if f.test {
				continue
			}
			code = true
			if f.doc == "" {
				continue
			}
			docs = append(docs, f.path)
			start := "Package " + f.name + " "
			if f.name == "main" {
				start = "Command " + filepath.Base(p.dir) + " "
			}
			if !strings.HasPrefix(f.doc, start) {
				t.Errorf("%s: the package comment starts with %q, not %q", f.path, strings.SplitN(f.doc, "\n", 2)[0], start)
			}
		}
		switch {
		case code && len(docs) == 0:
			t.Errorf("%s has no package comment: say what it is, its invariants, who owns its goroutines and its limits", p.dir)
		case len(docs) > 1:
			t.Errorf("%s has %d package comments: %s", p.dir, len(docs), strings.Join(docs, ", "))
		}
	}
}

func TestNoFileIsTooLong(t *testing.T) {
	for _, p := range packages(t) {
		for _, f := range p.files {
			if f.lines > fileLinesMax && !f.generated {
				t.Errorf("%s has %d lines, more than %d: look for the second noun", f.path, f.lines, fileLinesMax)
			}
		}
	}
}

// TestMainsAreShort keeps logic out of main.go, where no test reaches it.
func TestMainsAreShort(t *testing.T) {
	for _, p := range packages(t) {
		for _, f := range p.files {
			if strings.HasPrefix(f.path, "cmd/") && strings.HasSuffix(f.path, "/main.go") && f.lines >= 40 {
				t.Errorf("%s has %d lines; a main has under 40", f.path, f.lines)
			}
		}
	}
}

// TestNoLeftovers keeps marks of unfinished work out of committed code.
func TestNoLeftovers(t *testing.T) {
	base := root(t)
	words := []string{"TO" + "DO", "FIX" + "ME", "XX" + "X:"}
	for _, p := range packages(t) {
		for _, f := range p.files {
			src, err := os.ReadFile(filepath.Join(base, f.path))
			if err != nil {
				t.Fatal(err)
			}
			for n, line := range strings.Split(string(src), "\n") {
				_, comment, ok := strings.Cut(line, "//")
				if !ok {
					continue
				}
				for _, w := range words {
					if strings.Contains(comment, w) {
						t.Errorf("%s:%d: %s: file an issue or do it", f.path, n+1, w)
					}
				}
			}
		}
	}
}
