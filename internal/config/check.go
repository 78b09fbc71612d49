package config

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Roles that exist. Those that map to a reason are known words that this version can not run.
var roles = map[string]string{
	"bookie":   "",
	"metadata": "",
	"recovery": "",
	"facade":   "the Pulsar facade is not in this version",
	"offload":  "",
}

func checkRoles(c *Config) error {
	if len(c.Run.Roles) == 0 {
		return errors.New("names no role: use for example [\"bookie\"]")
	}
	seen := map[string]bool{}
	var errs []error
	for _, r := range c.Run.Roles {
		later, known := roles[r]
		switch {
		case !known:
			errs = append(errs, fmt.Errorf("%q is no role; the roles are bookie, metadata, recovery and offload", r))
		case later != "":
			errs = append(errs, fmt.Errorf("the role %q can not run: %s", r, later))
		case seen[r]:
			errs = append(errs, fmt.Errorf("the role %q is named twice", r))
		}
		seen[r] = true
	}
	return errors.Join(errs...)
}

// HasRole reports whether the process runs the named role.
func (c *Config) HasRole(role string) bool { return slices.Contains(c.Run.Roles, role) }

func checkBookieID(c *Config) error {
	if len(c.Bookie.ID) > 255 {
		return errors.New("is longer than 255 bytes")
	}
	for _, r := range c.Bookie.ID {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == ':', r == '-':
		default:
			return fmt.Errorf("%q holds %q; allowed are letters, digits, '.', ':' and '-'", c.Bookie.ID, r)
		}
	}
	if c.Bookie.ID == "readonly" || c.Bookie.ID == "cookies" {
		return fmt.Errorf("%q is a reserved word of the metadata layout", c.Bookie.ID)
	}
	return nil
}

func checkAdvertised(c *Config) error {
	a := c.Bookie.AdvertisedAddress
	if a == "" {
		return nil
	}
	if strings.ContainsAny(a, " /\t") {
		return fmt.Errorf("%q is neither a name nor an address", a)
	}
	if _, _, err := net.SplitHostPort(a); err == nil {
		return fmt.Errorf("%q holds a port; the port comes from bookie.listen", a)
	}
	return nil
}

// domainPattern is a location as BookKeeper writes it.
var domainPattern = regexp.MustCompile(`^(/[A-Za-z0-9._-]{1,63}){1,2}$`)

func checkDomain(c *Config) error {
	if d := c.Bookie.Domain; d != "" && !domainPattern.MatchString(d) {
		return fmt.Errorf("%q is neither /rack nor /region/rack, of letters, digits, '.', '_' and '-'", d)
	}
	return nil
}

func checkListen(key string, get func(*Config) string, offAllowed bool) func(*Config) error {
	return func(c *Config) error {
		s := get(c)
		if s == "" && offAllowed {
			return nil
		}
		host, port, err := net.SplitHostPort(s)
		if err != nil {
			return fmt.Errorf("%q is not host:port", s)
		}
		n, err := strconv.Atoi(port)
		if err != nil || n < 0 || n > 65535 {
			return fmt.Errorf("%q is no port", port)
		}
		if n == 0 {
			return errors.New("port 0 is for standalone only: clients and cookies need a fixed one")
		}
		if strings.HasPrefix(host, "%") && key != "bookie.listen" {
			return errors.New("an interface name is only allowed in bookie.listen")
		}
		return nil
	}
}

func checkPeers(c *Config) error {
	seen := map[string]bool{}
	for _, p := range c.Metadata.Server.Peers {
		name, addr, ok := strings.Cut(p, "=")
		if !ok || name == "" {
			return fmt.Errorf("%q is not name=host:port", p)
		}
		if _, _, err := net.SplitHostPort(addr); err != nil {
			return fmt.Errorf("%q is not name=host:port", p)
		}
		if seen[name] {
			return fmt.Errorf("names %q twice", name)
		}
		seen[name] = true
	}
	return nil
}

func checkJournalDirs(c *Config) error { return checkDirs(c, "storage.journal_dirs") }

func checkLedgerDirs(c *Config) error { return checkDirs(c, "storage.ledger_dirs") }

func checkIndexDirs(c *Config) error {
	s := &c.Storage
	if n := len(s.IndexDirs); n != 0 && n != len(s.LedgerDirs) {
		return fmt.Errorf("has %d directories and storage.ledger_dirs %d; they need the same number and order, or no index_dirs at all", n, len(s.LedgerDirs))
	}
	return checkDirs(c, "storage.index_dirs")
}

// checkDirs checks one of the three lists, by itself and against those before it in the file.
func checkDirs(c *Config, key string) error {
	s := &c.Storage
	var errs []error
	used := map[string]string{}
	for _, list := range []struct {
		key  string
		dirs []string
	}{{"storage.journal_dirs", s.JournalDirs}, {"storage.ledger_dirs", s.LedgerDirs}, {"storage.index_dirs", s.IndexDirs}} {
		if list.key == key && key != "storage.index_dirs" && len(list.dirs) == 0 {
			return errors.New("names no directory")
		}
		for _, d := range list.dirs {
			clean := filepath.Clean(d)
			other, twice := used[clean]
			used[clean] = list.key
			switch {
			case list.key != key:
			case d == "":
				errs = append(errs, errors.New("holds an empty path"))
			case strings.ContainsAny(d, "\t\n\r,"):
				errs = append(errs, fmt.Errorf("%q holds a tab, a line break or a comma, which a cookie can not carry", d))
			// The index may lie in the ledger directory; everything else needs a directory of its own.
			case twice && (key != "storage.index_dirs" || other != "storage.ledger_dirs"):
				errs = append(errs, fmt.Errorf("%s is named in %s and in %s; each needs a directory of its own", d, other, key))
			}
		}
		if list.key == key {
			break
		}
	}
	return errors.Join(errs...)
}

func checkDurability(c *Config) error {
	switch c.Journal.Durability {
	case "relaxed":
		if c.Journal.IO != "buffered" {
			return errors.New("\"relaxed\" needs journal.io = \"buffered\": adds are then acknowledged from the page cache")
		}
	case "off":
		return errors.New("\"off\" needs repair from peers, which is not in this version")
	}
	return nil
}

func checkIO(c *Config) error {
	if c.Journal.IO == "uring" {
		return errors.New("\"uring\" is not in this build: it was no faster than \"dsync\" where it was measured")
	}
	return nil
}

func checkGroupWait(c *Config) error {
	w := c.Journal.MaxGroupWait
	if w == AutoDuration || w == 0 || (w >= 1e6 && w <= 20e6) {
		return nil
	}
	return fmt.Errorf("%s is outside 0 and 1ms to 20ms: the runtime has no finer sleep", w)
}

func checkMinorBelow(c *Config) error {
	switch g := &c.GC; {
	case g.MinorBelow < 0 || g.MinorBelow > 1:
		return fmt.Errorf("%v is outside 0 to 1", g.MinorBelow)
	case g.MajorBelow >= 0 && g.MajorBelow <= 1 && g.MinorBelow >= g.MajorBelow:
		return fmt.Errorf("%v is not below gc.major.below = %v", g.MinorBelow, g.MajorBelow)
	}
	return nil
}

func checkMajorBelow(c *Config) error {
	if v := c.GC.MajorBelow; v < 0 || v > 1 {
		return fmt.Errorf("%v is outside 0 to 1", v)
	}
	return nil
}

func checkMinorEvery(c *Config) error {
	g := &c.GC
	var errs []error
	if g.MinorEvery < g.Interval {
		errs = append(errs, fmt.Errorf("%s is below gc.interval = %s", g.MinorEvery, g.Interval))
	}
	if g.MinorEvery >= g.MajorEvery {
		errs = append(errs, fmt.Errorf("%s is not below gc.major.every = %s", g.MinorEvery, g.MajorEvery))
	}
	return errors.Join(errs...)
}

func checkFullAt(c *Config) error {
	if v := c.Disk.FullAt; v <= 0 || v >= 1 {
		return fmt.Errorf("%v is outside 0 to 1", v)
	}
	return nil
}

func checkWarnAt(c *Config) error {
	if d := &c.Disk; d.WarnAt <= 0 || d.WarnAt >= d.FullAt && checkFullAt(c) == nil {
		return fmt.Errorf("%v is not between 0 and disk.full_at = %v", d.WarnAt, d.FullAt)
	}
	return nil
}

func checkResumeBelow(c *Config) error {
	if d := &c.Disk; d.ResumeBelow <= 0 || d.ResumeBelow > d.FullAt && checkFullAt(c) == nil {
		return fmt.Errorf("%v is not between 0 and disk.full_at = %v", d.ResumeBelow, d.FullAt)
	}
	return nil
}

func checkRackSource(c *Config) error {
	kind, path, ok := strings.Cut(c.Placement.RackSource, ":")
	if c.Placement.RackSource == "pulsar-zk" || (ok && path != "" && (kind == "static" || kind == "script")) {
		return nil
	}
	return fmt.Errorf("%q is neither pulsar-zk nor static:/path nor script:/path", c.Placement.RackSource)
}

func checkOffloadTargets(c *Config) error {
	if c.HasRole("offload") && c.Offload.Targets == "" {
		return errors.New("is not set: the role offload needs a file that names its object stores")
	}
	return nil
}

func checkOffloadDir(c *Config) error {
	if c.HasRole("offload") && c.Offload.Dir == "" {
		return errors.New("is not set: the role offload needs a directory of its own")
	}
	return nil
}

func checkOffloadEncryption(c *Config) error {
	if c.Offload.Encryption != "none" && c.Offload.KeySource == "" {
		return errors.New("needs offload.key_source")
	}
	return nil
}

// checkOffloadKeySource repeats nothing of a wrong value: it may be a key.
func checkOffloadKeySource(c *Config) error {
	s := c.Offload.KeySource
	kind, name, _ := strings.Cut(s, ":")
	switch {
	case s == "", name != "" && (kind == "file" || kind == "env"), kind == "command" && filepath.IsAbs(name):
		return nil
	case kind == "command":
		return errors.New("names a command without an absolute path")
	}
	return errors.New("is neither file:PATH nor env:NAME nor command:PATH; a key itself never stands in the configuration")
}

func checkOffloadMatch(c *Config) error {
	for _, m := range c.Offload.Match {
		if k, _, ok := strings.Cut(m, "="); !ok || k == "" {
			return fmt.Errorf("%q is not key=value", m)
		}
	}
	return nil
}

func between(get func(*Config) float64, low, high float64, words string) func(*Config) error {
	return func(c *Config) error {
		if v := get(c); v < low || v > high {
			return fmt.Errorf("is outside %s", words)
		}
		return nil
	}
}

func atLeast(get func(*Config) Size, low Size) func(*Config) error {
	return func(c *Config) error {
		if v := get(c); v != AutoSize && v < low {
			return fmt.Errorf("%s is below %s", v, low)
		}
		return nil
	}
}
