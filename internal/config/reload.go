package config

import (
	"maps"
	"slices"
)

// Change is a setting whose value is another than the one in force.
type Change struct {
	Key     string `json:"key"`
	From    string `json:"from"`
	To      string `json:"to"`
	Refusal string `json:"refusal,omitempty"` // not empty: the old value stays in force, and why
}

// Reload reads the sources of l again: the file, and the environment and --set as they were at the start. Load's errors.
func (l *Loaded) Reload() (*Loaded, error) { return Load(l.options) }

// Adopt returns l with the values of next that can change while a process runs, and what is different in next. refuse may
// object to a change beyond what the table says; it may be nil. If the mixture can not work the error is ProblemsError.
func (l *Loaded) Adopt(next *Loaded, refuse func(key string, mixed *Config) string) (*Loaded, []Change, error) {
	mixed := &Loaded{Config: l.Config, File: l.File, origin: maps.Clone(l.origin), options: l.options}
	var changes []Change
	for _, s := range settings {
		from, to := s.Format(&l.Config), s.Format(&next.Config)
		if from == to {
			continue
		}
		c := Change{Key: s.Key, From: from, To: to}
		switch {
		case s.Later != "":
			c.Refusal = "has no effect: " + s.Later
		case !s.Reload:
			c.Refusal = "needs a restart"
		default:
			copyValue(s.field(&mixed.Config), s.field(&next.Config))
			mixed.origin[s.Key] = next.origin[s.Key]
		}
		changes = append(changes, c)
	}
	for i := range changes {
		c := &changes[i]
		if c.Refusal != "" || refuse == nil {
			continue
		}
		if c.Refusal = refuse(c.Key, &mixed.Config); c.Refusal != "" {
			s := settingByKey[c.Key]
			copyValue(s.field(&mixed.Config), s.field(&l.Config))
			mixed.origin[c.Key] = l.origin[c.Key]
		}
	}
	if problems := mixed.validate(l.options.Incomplete, nil); len(problems) > 0 {
		return nil, nil, problems
	}
	return mixed, changes, nil
}

// copyValue stores the value that src points to where dst points; both are fields of one setting.
func copyValue(dst, src any) {
	switch d := dst.(type) {
	case *string:
		*d = *src.(*string)
	case *bool:
		*d = *src.(*bool)
	case *int:
		*d = *src.(*int)
	case *float64:
		*d = *src.(*float64)
	case *[]string:
		*d = slices.Clone(*src.(*[]string))
	case *Size:
		*d = *src.(*Size)
	case *Duration:
		*d = *src.(*Duration)
	}
}
