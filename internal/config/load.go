package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/binderylog/bindery/internal/vfs"
)

// fileBytesMax bounds a configuration file. Ours have a few hundred lines.
const fileBytesMax = 1 << 20

// Origin says where the value in force comes from.
type Origin struct {
	Kind string // "default", "file", "environment" or "--set"
	Line int    // in the file, for Kind "file"
	Name string // the file or the variable
}

// String prints the origin for people.
func (o Origin) String() string {
	switch o.Kind {
	case "file":
		return fmt.Sprintf("%s:%d", o.Name, o.Line)
	case "environment":
		return "environment " + o.Name
	case "":
		return "default"
	}
	return o.Kind
}

// Problem is one thing that is wrong with a configuration.
type Problem struct {
	Where string // "bindery.toml:12", "environment BINDERY_GC__RATE" or "--set"
	Key   string
	Msg   string
	line  int // in the file, 0 for problems elsewhere
}

// String prints the problem as one line.
func (p Problem) String() string {
	var b strings.Builder
	if p.Where != "" {
		b.WriteString(p.Where + ": ")
	}
	if p.Key != "" {
		b.WriteString(p.Key + ": ")
	}
	b.WriteString(p.Msg)
	return b.String()
}

// ProblemsError is every problem found, in the order of the sources. It is an error when it is not empty.
type ProblemsError []Problem

// Error implements error with one line per problem.
func (p ProblemsError) Error() string {
	lines := make([]string, len(p))
	for i, q := range p {
		lines[i] = q.String()
	}
	return strings.Join(lines, "\n")
}

// Options says where to load from.
type Options struct {
	File    string   // path of the TOML file; "" = none
	Environ []string // "NAME=value" as os.Environ gives them
	Set     []string // "section.key=value"
	Lenient bool     // unknown keys are warnings
	// Incomplete admits a configuration without metadata.uri, for commands that only look at it.
	Incomplete bool
	// Defaults overrides built-in defaults by key, for the modes of the program that have others (standalone).
	Defaults map[string]string
}

// Loaded is a configuration and where each value came from.
type Loaded struct {
	Config
	File     string
	Warnings []Problem
	origin   map[string]Origin
	options  Options
}

// Origin says where the value of key comes from.
func (l *Loaded) Origin(key string) Origin { return l.origin[key] }

// IsSet reports whether anything but the default gave key its value.
func (l *Loaded) IsSet(key string) bool { return l.origin[key].Kind != "" }

// Empty reports whether there is a file and it sets nothing.
func (l *Loaded) Empty() bool {
	for _, o := range l.origin {
		if o.Kind == "file" {
			return false
		}
	}
	return l.File != ""
}

// Load reads and checks a configuration. The error is ProblemsError, or the error of reading the file.
func Load(o Options) (*Loaded, error) {
	return loadFrom(o, func(l *Loaded) (ProblemsError, bool, error) {
		if o.File == "" {
			return nil, true, nil
		}
		data, err := readBounded(o.File)
		if err != nil {
			return nil, false, err
		}
		problems, readable := l.applyFile(o.File, data, o.Lenient)
		return problems, readable, nil
	})
}

func loadFrom(o Options, file func(*Loaded) (problems ProblemsError, readable bool, err error)) (*Loaded, error) {
	l := &Loaded{File: o.File, origin: map[string]Origin{}, options: o}
	for _, s := range settings {
		text := s.Default
		if d, ok := o.Defaults[s.Key]; ok {
			text = d
		}
		if err := setText(s.field(&l.Config), text, s.Auto); err != nil {
			panic("BUG: default of " + s.Key + ": " + err.Error()) // a test loads the defaults
		}
	}
	problems, readable, err := file(l)
	if err != nil {
		return nil, err
	}
	if !readable {
		return nil, problems // nothing is known of what it says
	}
	problems = append(problems, l.applyEnvironment(o.Environ, o.Lenient)...)
	problems = append(problems, l.applySet(o.Set)...)
	problems = append(problems, l.validate(o.Incomplete, problems)...)
	if len(problems) > 0 {
		slices.SortStableFunc(problems, func(a, b Problem) int { return cmp.Compare(a.line, b.line) })
		return nil, problems
	}
	return l, nil
}

// LoadText is Load for a configuration in memory.
func LoadText(toml []byte) (*Loaded, error) {
	return loadFrom(Options{}, func(l *Loaded) (ProblemsError, bool, error) {
		problems, readable := l.applyFile("line", toml, false)
		return problems, readable, nil
	})
}

func readBounded(name string) ([]byte, error) {
	data, err := vfs.ReadSmall(name, fileBytesMax)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	return data, nil
}

// applyFile applies a file's values over what l holds.
func (l *Loaded) applyFile(name string, data []byte, lenient bool) (problems ProblemsError, readable bool) {
	items, problem := parseTOML(name, data)
	if problem != nil {
		return ProblemsError{*problem}, false
	}
	for _, it := range items {
		where := fmt.Sprintf("%s:%d", name, it.line)
		s, ok := settingByKey[it.key]
		switch {
		case it.wrongTable:
			problems = append(problems, Problem{where, it.key, "is a table of settings, not a value", it.line})
		case !ok:
			p := Problem{where, it.key, unknownKey(it.key), it.line}
			if why := unsafeToIgnore(it.key); why != "" {
				p.Msg = why
				problems = append(problems, p)
			} else if lenient {
				l.Warnings = append(l.Warnings, p)
			} else {
				problems = append(problems, p)
			}
		default:
			if err := setTOML(s.field(&l.Config), it.value, s.Auto); err != nil {
				problems = append(problems, Problem{where, it.key, err.Error(), it.line})
				continue
			}
			l.origin[it.key] = Origin{Kind: "file", Name: name, Line: it.line}
		}
	}
	return problems, true
}

// unsafeToIgnore says why an unknown key is refused also with --lenient: who writes it relies on a protection that is not
// there.
func unsafeToIgnore(key string) string {
	for part := range strings.SplitSeq(key, ".") {
		switch part {
		case "tls", "ssl":
			return laterTLS + "; remove the setting"
		case "auth", "authentication", "sasl":
			return "authentication is not in this version; remove the setting"
		}
	}
	return ""
}

func unknownKey(key string) string {
	if why := unsafeToIgnore(key); why != "" {
		return why
	}
	if near := Nearest(key); near != "" {
		return fmt.Sprintf("no such setting; did you mean %s?", near)
	}
	return "no such setting (`bindery config explain --all` lists them)"
}

// applyEnvironment applies BINDERY_<SECTION>__<KEY>. Variables of ours without a double underscore mean something else.
func (l *Loaded) applyEnvironment(environ []string, lenient bool) ProblemsError {
	var problems ProblemsError
	sorted := slices.Clone(environ)
	sort.Strings(sorted)
	for _, kv := range sorted {
		name, value, _ := strings.Cut(kv, "=")
		rest, ok := strings.CutPrefix(name, "BINDERY_")
		if !ok || !strings.Contains(rest, "__") {
			continue
		}
		key := strings.ToLower(strings.ReplaceAll(rest, "__", "."))
		s, known := settingByKey[key]
		if !known {
			p := Problem{Where: "environment " + name, Msg: unknownVariable(key)}
			if why := unsafeToIgnore(key); why != "" {
				p.Msg = why
				problems = append(problems, p)
			} else if lenient {
				l.Warnings = append(l.Warnings, p)
			} else {
				problems = append(problems, p)
			}
			continue
		}
		if err := setText(s.field(&l.Config), value, s.Auto); err != nil {
			problems = append(problems, Problem{Where: "environment " + name, Key: key, Msg: err.Error()})
			continue
		}
		l.origin[key] = Origin{Kind: "environment", Name: name}
	}
	return problems
}

func unknownVariable(key string) string {
	if near := Nearest(key); near != "" {
		s := settingByKey[near]
		return fmt.Sprintf("no such setting; did you mean %s?", s.Env())
	}
	return "no such setting"
}

// applySet applies --set section.key=value.
func (l *Loaded) applySet(set []string) ProblemsError {
	var problems ProblemsError
	for _, kv := range set {
		key, value, ok := strings.Cut(kv, "=")
		key = strings.TrimSpace(key)
		if !ok {
			problems = append(problems, Problem{Where: "--set", Msg: fmt.Sprintf("%q is not section.key=value", kv)})
			continue
		}
		s, known := settingByKey[key]
		if !known {
			problems = append(problems, Problem{Where: "--set", Key: key, Msg: unknownKey(key)})
			continue
		}
		if err := setText(s.field(&l.Config), value, s.Auto); err != nil {
			problems = append(problems, Problem{Where: "--set", Key: key, Msg: err.Error()})
			continue
		}
		l.origin[key] = Origin{Kind: "--set"}
	}
	return problems
}

// validate checks values against each other and against what this version can do. A key that could not be read, which
// known tells, has its default and is left alone.
func (l *Loaded) validate(incomplete bool, known ProblemsError) ProblemsError {
	var problems ProblemsError
	unread := map[string]bool{}
	for _, p := range known {
		unread[p.Key] = true
	}
	add := func(key string, err error) {
		o := l.origin[key]
		where := ""
		if o.Kind != "" {
			where = o.String()
		}
		for _, line := range strings.Split(err.Error(), "\n") { // of joined errors
			problems = append(problems, Problem{where, key, line, o.Line})
		}
	}
	def := Config{}
	for _, s := range settings {
		_ = setText(s.field(&def), s.Default, s.Auto)
		if unread[s.Key] {
			continue
		}
		if len(s.OneOf) > 0 {
			word := *s.field(&l.Config).(*string)
			if !slices.Contains(s.OneOf, word) {
				add(s.Key, fmt.Errorf("%q is none of %s", word, strings.Join(s.OneOf, ", ")))
				continue
			}
		}
		if s.check != nil {
			if err := s.check(&l.Config); err != nil {
				add(s.Key, err)
				continue
			}
		}
		if s.Later == "" || !l.IsSet(s.Key) || s.Format(&l.Config) == s.Format(&def) {
			continue
		}
		if s.Unsafe {
			add(s.Key, errors.New(s.Later+"; remove the setting"))
			continue
		}
		l.Warnings = append(l.Warnings, Problem{Where: l.origin[s.Key].String(), Key: s.Key, Msg: "has no effect: " + s.Later})
	}
	if l.Metadata.URI == "" && !incomplete && !unread["metadata.uri"] && !l.HasRole("metadata") {
		add("metadata.uri", errors.New("is not set: name the cluster's metadata store, for example \"etcd://10.0.0.1:2379;10.0.0.2:2379/ledgers\""))
	}
	return problems
}
