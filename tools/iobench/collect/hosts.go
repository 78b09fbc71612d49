package collect

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"unicode"
)

// hostsMax bounds a list of hosts.
const hostsMax = 10_000

// Host is a machine and the directories to measure on it.
type Host struct {
	Name string // as ssh takes it: host or user@host
	Dirs []string
}

// ParseHosts reads a list: a host a line, behind it the directories to measure, parted by blanks. A host without any gets
// the default ones. # begins a comment.
func ParseHosts(r io.Reader, dirs []string) (hosts []Host, err error) {
	seen := map[string]bool{}
	scan := bufio.NewScanner(r)
	for line := 1; scan.Scan(); line++ {
		text, _, _ := strings.Cut(scan.Text(), "#")
		words := strings.Fields(text)
		if len(words) == 0 {
			continue
		}
		h := Host{Name: words[0], Dirs: words[1:]}
		if len(h.Dirs) == 0 {
			h.Dirs = dirs
		}
		switch {
		case strings.HasPrefix(h.Name, "-") || strings.ContainsFunc(h.Name, func(c rune) bool { return unicode.IsControl(c) || strings.ContainsRune(`/\'"$&;|<>()`+"`", c) }):
			return nil, fmt.Errorf("line %d: %q is no host that ssh takes", line, h.Name)
		case len(h.Dirs) == 0:
			return nil, fmt.Errorf("line %d: %s has no directory to measure: write it behind the host, or use --dir", line, h.Name)
		case seen[h.fileName()]:
			return nil, fmt.Errorf("line %d: %s is there twice (or another host of the same file name): write all directories of a host into one line", line, h.Name)
		case len(hosts) == hostsMax:
			return nil, fmt.Errorf("more than %d hosts", hostsMax)
		}
		for _, d := range h.Dirs {
			if !strings.HasPrefix(d, "/") || strings.ContainsFunc(d, unicode.IsControl) {
				return nil, fmt.Errorf("line %d: %q is no absolute path", line, d)
			}
		}
		seen[h.fileName()] = true
		hosts = append(hosts, h)
	}
	if err := scan.Err(); err != nil {
		return nil, err
	}
	if len(hosts) == 0 {
		return nil, fmt.Errorf("no host in the list")
	}
	return hosts, nil
}

// fileName is the name of a host's file.
func (h *Host) fileName() string {
	name := strings.TrimLeft(h.Name, ".")
	if name == "" {
		name = "_"
	}
	return strings.Map(func(c rune) rune {
		if unicode.IsLetter(c) || unicode.IsDigit(c) || strings.ContainsRune("._@-", c) {
			return c
		}
		return '_'
	}, name) + ".json"
}
