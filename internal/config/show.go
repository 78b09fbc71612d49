package config

import (
	"fmt"
	"io"
	"strings"
)

// WriteTOML writes the configuration as a file that Load accepts, one line per setting, with the origin of each value
// that is not a default. With an Effective, "auto" is replaced by the figure it comes to, and expert settings are shown.
func (l *Loaded) WriteTOML(w io.Writer, e *Effective, all bool) error {
	var b strings.Builder
	section := ""
	for _, s := range settings {
		if s.Expert && !all && !l.IsSet(s.Key) {
			continue
		}
		value, reason := s.Format(&l.Config), ""
		if e != nil {
			value, reason = l.Value(s, *e)
		}
		var notes []string
		if o := l.Origin(s.Key); o.Kind != "" {
			notes = append(notes, "from "+o.String())
		}
		if reason != "" {
			notes = append(notes, reason)
		}
		if s.Section() != section {
			if section != "" {
				b.WriteByte('\n')
			}
			section = s.Section()
			fmt.Fprintf(&b, "[%s]\n", section)
		}
		line := fmt.Sprintf("%-20s = %s", s.Name(), value)
		if len(notes) > 0 {
			line = fmt.Sprintf("%-50s # %s", line, strings.Join(notes, "; "))
		}
		b.WriteString(line + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Explain writes everything known about one setting.
func (l *Loaded) Explain(w io.Writer, s *Setting, e Effective) error {
	var b strings.Builder
	row := func(name, text string) {
		if text != "" {
			fmt.Fprintf(&b, "  %-12s %s\n", name, text)
		}
	}
	fmt.Fprintf(&b, "%s\n", s.Key)
	row("", s.Doc)
	row("type", s.Type())
	if len(s.OneOf) > 0 {
		row("one of", strings.Join(s.OneOf, ", "))
	}
	row("range", s.Range)
	def := Config{}
	_ = setText(s.field(&def), s.Default, s.Auto)
	row("default", s.Format(&def))
	row("why", s.Why)
	value, reason := l.Value(s, e)
	if reason != "" {
		value += " (" + reason + ")"
	}
	row("in force", value)
	row("from", l.Origin(s.Key).String())
	row("environment", s.Env())
	row("BookKeeper", s.Old)
	if s.Reload {
		row("reload", "can change while the process runs: SIGHUP or `bindery config reload`")
	}
	if s.Expert {
		row("expert", "may change between minor versions; change it on a measurement only")
	}
	if s.Later != "" {
		effect := "has no effect: "
		if s.Unsafe {
			effect = "is refused: "
		}
		row("note", effect+s.Later)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Difference is one setting whose values differ.
type Difference struct {
	Key string `json:"key"`
	A   string `json:"a"`
	B   string `json:"b"`
}

// Diff lists the settings in which a and b differ.
func Diff(a, b *Loaded) []Difference {
	out := []Difference{}
	for _, s := range settings {
		if va, vb := s.Format(&a.Config), s.Format(&b.Config); va != vb {
			out = append(out, Difference{s.Key, va, vb})
		}
	}
	return out
}
