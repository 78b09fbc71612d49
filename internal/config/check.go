package config

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Roles that exist. Those that map to a reason are known words that this version can not run.
var roles = map[string]string{
	"bookie":   "",
	"metadata": "",
	"recovery": "auditing and re-replication are not in this version",
	"facade":   "the Pulsar facade is not in this version",
	"offload":  "tiered storage is not in this version",
}

func checkRoles(c *Config) error {
	if len(c.Run.Roles) == 0 {
		return errors.New("names no role: use for example [\"bookie\"]")
	}
	seen := map[string]bool{}
	for _, r := range c.Run.Roles {
		later, known := roles[r]
		switch {
		case !known:
			return fmt.Errorf("%q is no role; the roles are bookie, metadata, recovery, facade and offload", r)
		case later != "":
			return fmt.Errorf("the role %q can not run: %s", r, later)
		case seen[r]:
			return fmt.Errorf("the role %q is named twice", r)
		}
		seen[r] = true
	}
	return nil
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

func checkDirs(c *Config) error {
	s := &c.Storage
	if len(s.JournalDirs) == 0 {
		return errors.New("names no directory")
	}
	if len(s.LedgerDirs) == 0 {
		return errors.New("storage.ledger_dirs names no directory")
	}
	if len(s.IndexDirs) != 0 && len(s.IndexDirs) != len(s.LedgerDirs) {
		return fmt.Errorf("storage.index_dirs has %d directories and storage.ledger_dirs %d; they need the same number and order, or no index_dirs at all", len(s.IndexDirs), len(s.LedgerDirs))
	}
	used := map[string]string{}
	for _, list := range []struct {
		key  string
		dirs []string
	}{{"storage.journal_dirs", s.JournalDirs}, {"storage.ledger_dirs", s.LedgerDirs}, {"storage.index_dirs", s.IndexDirs}} {
		for _, d := range list.dirs {
			if d == "" {
				return fmt.Errorf("%s holds an empty path", list.key)
			}
			if strings.ContainsAny(d, "\t\n\r,") {
				return fmt.Errorf("%s: %q holds a tab, a line break or a comma, which a cookie can not carry", list.key, d)
			}
			clean := filepath.Clean(d)
			other, twice := used[clean]
			// The index may lie in the ledger directory; everything else needs a directory of its own.
			if twice && (list.key != "storage.index_dirs" || other != "storage.ledger_dirs") {
				return fmt.Errorf("%s is named in %s and in %s; each needs a directory of its own", d, other, list.key)
			}
			used[clean] = list.key
		}
	}
	return nil
}

func checkDurability(c *Config) error {
	switch c.Journal.Durability {
	case "relaxed":
		if c.Journal.IO != "buffered" {
			return errors.New("\"relaxed\" needs journal.io = \"buffered\": adds are then acknowledged from the page cache")
		}
	case "off":
		return errors.New("\"off\" needs repair from peers, which is not in this version")
	case "sync":
		if c.Journal.IO == "buffered" {
			return errors.New("\"sync\" can not be had with journal.io = \"buffered\"; use \"fdatasync\", or say durability = \"relaxed\"")
		}
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

func checkCompaction(c *Config) error {
	g := &c.GC
	switch {
	case g.MinorBelow < 0 || g.MinorBelow > 1:
		return fmt.Errorf("%v is outside 0 to 1", g.MinorBelow)
	case g.MajorBelow < 0 || g.MajorBelow > 1:
		return fmt.Errorf("gc.major.below = %v is outside 0 to 1", g.MajorBelow)
	case g.MinorBelow >= g.MajorBelow:
		return fmt.Errorf("%v is not below gc.major.below = %v", g.MinorBelow, g.MajorBelow)
	case g.MinorEvery >= g.MajorEvery:
		return fmt.Errorf("gc.minor.every = %s is not below gc.major.every = %s", g.MinorEvery, g.MajorEvery)
	case g.MinorEvery < g.Interval:
		return fmt.Errorf("gc.minor.every = %s is below gc.interval = %s", g.MinorEvery, g.Interval)
	}
	return nil
}

func checkDiskMarks(c *Config) error {
	d := &c.Disk
	switch {
	case d.FullAt <= 0 || d.FullAt >= 1:
		return fmt.Errorf("%v is outside 0 to 1", d.FullAt)
	case d.WarnAt <= 0 || d.WarnAt >= d.FullAt:
		return fmt.Errorf("disk.warn_at = %v is not between 0 and disk.full_at = %v", d.WarnAt, d.FullAt)
	case d.ResumeBelow <= 0 || d.ResumeBelow > d.FullAt:
		return fmt.Errorf("disk.resume_below = %v is not between 0 and disk.full_at = %v", d.ResumeBelow, d.FullAt)
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
