package config

import (
	"slices"
	"sort"
	"strings"
)

// Setting describes one key of the file. The table below is the only place that knows it.
type Setting struct {
	Key     string   // "storage.cache.write"
	Default string   // as text; "" for an empty string or list
	Auto    bool     // the word "auto" is allowed
	OneOf   []string // the allowed words, if only these
	Range   string   // allowed values in words, for people
	Doc     string   // what it does
	Why     string   // why the default is what it is
	Old     string   // the key of bookkeeper.conf that says the same
	Reload  bool     // a running process can take a new value
	Expert  bool     // may change between minor versions
	Later   string   // not empty: has no effect in this version, and why
	Unsafe  bool     // with Later: set to anything but the default it is refused, since ignoring it would be unsafe
	field   func(*Config) any
	check   func(c *Config) error // beyond type and OneOf; nil = none
}

// Env is the environment variable that overrides the setting.
func (s *Setting) Env() string {
	return "BINDERY_" + strings.ToUpper(strings.ReplaceAll(s.Key, ".", "__"))
}

// Type names the setting's type for people.
func (s *Setting) Type() string { return typeName(s.field(&Config{})) }

// Section is the top table that the key stands in.
func (s *Setting) Section() string {
	section, _, _ := strings.Cut(s.Key, ".")
	return section
}

// Name is the key inside its section.
func (s *Setting) Name() string {
	_, name, _ := strings.Cut(s.Key, ".")
	return name
}

// Format prints the setting's value in c as TOML.
func (s *Setting) Format(c *Config) string { return formatTOML(s.field(c)) }

const (
	laterTLS       = "TLS is not in this version"
	laterPlacement = "each bookie publishes its own: bookie.domain"
)

// Settings lists every setting in the order of the file.
func Settings() []*Setting { return settings }

// Lookup finds a setting by key.
func Lookup(key string) (*Setting, bool) {
	s, ok := settingByKey[key]
	return s, ok
}

// LookupOld finds the settings that stand for a key of BookKeeper's configuration.
func LookupOld(key string) (out []*Setting) {
	for _, s := range settings {
		words := strings.FieldsFunc(s.Old, func(r rune) bool { return r == ' ' || r == ',' })
		if slices.Contains(words, key) && key != "and" && key != "others" || importRules[key].to == s.Key && key != "" {
			out = append(out, s)
		}
	}
	return out
}

// Nearest returns the known key closest to a misspelt one, or "".
func Nearest(key string) string {
	best, bestDistance := "", 1+len(key)/2
	for _, s := range settings {
		d := distance(key, s.Key)
		// A right key in the wrong section is a near miss too.
		if lastPart(s.Key) == lastPart(key) {
			d = min(d, 2)
		}
		if d < bestDistance {
			best, bestDistance = s.Key, d
		}
	}
	return best
}

func lastPart(key string) string { return key[strings.LastIndexByte(key, '.')+1:] }

// distance is the number of single-letter edits between a and b.
func distance(a, b string) int {
	prev := make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diagonal := prev[0]
		prev[0] = i
		for j := 1; j <= len(b); j++ {
			cost := diagonal
			if a[i-1] != b[j-1] {
				cost++
			}
			diagonal = prev[j]
			prev[j] = min(cost, prev[j]+1, prev[j-1]+1)
		}
	}
	return prev[len(b)]
}

var settingByKey = func() map[string]*Setting {
	m := make(map[string]*Setting, len(settings))
	for _, s := range settings {
		m[s.Key] = s
	}
	return m
}()

// Sections lists the section names in the order of the file.
func Sections() []string {
	var out []string
	seen := map[string]bool{}
	for _, s := range settings {
		if !seen[s.Section()] {
			seen[s.Section()] = true
			out = append(out, s.Section())
		}
	}
	return out
}

// Keys lists all keys, sorted.
func Keys() []string {
	keys := make([]string, 0, len(settings))
	for _, s := range settings {
		keys = append(keys, s.Key)
	}
	sort.Strings(keys)
	return keys
}
