package device

import (
	"strconv"
	"strings"
)

// mount is a line of /proc/self/mountinfo.
type mount struct {
	number  string // major:minor
	root    string
	point   string
	options string // of the mount and of the file system
	kind    string
	source  string
}

// mounts returns what is mounted, in order.
func (s System) mounts() (list []mount) {
	for line := range strings.Lines(s.text("proc/self/mountinfo")) {
		left, right, ok := strings.Cut(strings.TrimSpace(line), " - ")
		l, r := strings.Fields(left), strings.Fields(right)
		if !ok || len(l) < 6 || len(r) < 3 {
			continue
		}
		list = append(list, mount{
			number: l[2], root: unescape(l[3]), point: unescape(l[4]), kind: r[0], source: unescape(r[1]),
			options: mergeOptions(l[5], r[2]),
		})
	}
	return list
}

// mountOf returns the mount that holds a path: the last one of those with the longest name.
func mountOf(list []mount, path string) (found mount, ok bool) {
	for _, m := range list {
		if (path == m.point || m.point == "/" || strings.HasPrefix(path, m.point+"/")) && len(m.point) >= len(found.point) {
			found, ok = m, true
		}
	}
	return found, ok
}

// mergeOptions joins the options of a mount and of its file system, each once.
func mergeOptions(a, b string) string {
	var out []string
	seen := map[string]bool{}
	for _, o := range strings.Split(a+","+b, ",") {
		if o != "" && !seen[o] {
			seen[o] = true
			out = append(out, o)
		}
	}
	return strings.Join(out, ",")
}

// unescape undoes the octal escapes of blanks and the like.
func unescape(text string) string {
	if !strings.Contains(text, `\`) {
		return text
	}
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' && i+3 < len(text) {
			if n, err := strconv.ParseUint(text[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(text[i])
	}
	return b.String()
}
