package device

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// System is where /proc and /sys are read. The zero value is the machine; tests set another root.
type System struct{ Root string }

// text reads a small file of the kernel, trimmed; "" if there is none.
func (s System) text(parts ...string) string {
	const kernelFileMax = 1 << 20
	name := filepath.Join(append([]string{"/", s.Root}, parts...)...)
	f, err := os.Open(name)
	if err != nil {
		return ""
	}
	defer f.Close()
	b := make([]byte, 0, 4096)
	for len(b) < kernelFileMax {
		if len(b) == cap(b) {
			b = append(b, 0)[:len(b)]
		}
		n, err := f.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		if err != nil {
			break
		}
	}
	return strings.TrimSpace(string(b))
}

// number reads a file that holds an integer; ok is false if there is none.
func (s System) number(parts ...string) (n int64, ok bool) {
	n, err := strconv.ParseInt(s.text(parts...), 10, 64)
	return n, err == nil
}

// names lists a directory of the kernel.
func (s System) names(parts ...string) []string {
	entries, err := os.ReadDir(filepath.Join(append([]string{"/", s.Root}, parts...)...))
	if err != nil {
		return nil
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names
}

// clean drops what has no place in one line of a report.
func clean(text string) string {
	return strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r <= ' ' || r == 0x7f }), " ")
}
