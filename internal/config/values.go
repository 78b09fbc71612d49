package config

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// Size is a number of bytes, or AutoSize.
type Size int64

// Duration is a span of time, or AutoDuration.
type Duration time.Duration

// The word "auto": the value is computed at start from the machine and the other settings.
const (
	AutoSize     Size     = -1
	AutoDuration Duration = -1
)

const (
	kib = int64(1) << 10
	mib = int64(1) << 20
	gib = int64(1) << 30
	tib = int64(1) << 40
)

// sizeUnits lists what ParseSize understands. Decimal and binary units differ by up to a tenth, so both are spelled out.
var sizeUnits = []struct {
	name  string
	bytes int64
}{
	{"TiB", tib}, {"GiB", gib}, {"MiB", mib}, {"KiB", kib},
	{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"kB", 1e3}, {"KB", 1e3},
	{"B", 1},
}

// ParseSize reads a size with its unit, such as "512KiB", "1.5GiB" or "200MB". A trailing "/s" of a rate is accepted.
func ParseSize(s string) (Size, error) {
	t := strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(s), "/s"))
	for _, u := range sizeUnits {
		num, ok := strings.CutSuffix(t, u.name)
		if !ok {
			continue
		}
		f, err := strconv.ParseFloat(strings.TrimSpace(num), 64)
		if err != nil || math.IsNaN(f) {
			return 0, fmt.Errorf("%q is not a size such as \"512KiB\"", s)
		}
		if f < 0 || f*float64(u.bytes) >= float64(math.MaxInt64) {
			return 0, fmt.Errorf("%q is out of range", s)
		}
		return Size(math.Round(f * float64(u.bytes))), nil
	}
	if _, err := strconv.ParseFloat(t, 64); err == nil {
		return 0, fmt.Errorf("%q has no unit: write \"%sB\" for bytes, or KiB, MiB, GiB", s, t)
	}
	return 0, fmt.Errorf("%q is not a size such as \"512KiB\"", s)
}

// String prints the size with the largest binary unit that leaves it whole, or one decimal.
func (s Size) String() string {
	if s == AutoSize {
		return "auto"
	}
	n := int64(s)
	for _, u := range sizeUnits[:4] {
		if n >= u.bytes && n%u.bytes == 0 {
			return strconv.FormatInt(n/u.bytes, 10) + u.name
		}
	}
	for _, u := range sizeUnits[:4] {
		if n >= u.bytes && n >= mib {
			return strconv.FormatFloat(float64(n)/float64(u.bytes), 'f', 1, 64) + u.name
		}
	}
	return strconv.FormatInt(n, 10) + "B"
}

// Approx is String for people who read a figure that was worked out: one decimal at most.
func (s Size) Approx() string {
	for _, u := range sizeUnits[:4] {
		if n := int64(s); n >= u.bytes {
			return strconv.FormatFloat(math.Round(10*float64(n)/float64(u.bytes))/10, 'f', -1, 64) + u.name
		}
	}
	return s.String()
}

// ParseDuration reads a duration with its unit, such as "1ms", "30s", "15m" or "168h"; "7d" is seven days.
func ParseDuration(s string) (Duration, error) {
	t := strings.TrimSpace(s)
	if t == "0" {
		return 0, nil // zero needs no unit
	}
	if days, ok := strings.CutSuffix(t, "d"); ok {
		f, err := strconv.ParseFloat(days, 64)
		if err == nil && f >= 0 && f < 100000 {
			return Duration(f * 24 * float64(time.Hour)), nil
		}
	}
	d, err := time.ParseDuration(t)
	if err != nil {
		if _, ferr := strconv.ParseFloat(t, 64); ferr == nil {
			return 0, fmt.Errorf("%q has no unit: write for example \"%ss\"", s, t)
		}
		return 0, fmt.Errorf("%q is not a duration such as \"30s\"", s)
	}
	if d < 0 {
		return 0, fmt.Errorf("%q is negative", s)
	}
	return Duration(d), nil
}

// String prints the duration without zero parts ("15m", not "15m0s").
func (d Duration) String() string {
	if d == AutoDuration {
		return "auto"
	}
	s := time.Duration(d).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// D returns d as a time.Duration, with def in place of "auto".
func (d Duration) D(def time.Duration) time.Duration {
	if d == AutoDuration {
		return def
	}
	return time.Duration(d)
}

// Bytes returns s as a number, with def in place of "auto".
func (s Size) Bytes(def int64) int64 {
	if s == AutoSize {
		return def
	}
	return int64(s)
}

var errWantString = errors.New("needs a string")

// setTOML stores a value that go-toml decoded into the field that ptr points to.
func setTOML(ptr any, v any, auto bool) error {
	switch p := ptr.(type) {
	case *string:
		s, ok := v.(string)
		if !ok {
			return fmt.Errorf("%w, not %s", errWantString, tomlType(v))
		}
		*p = s
	case *bool:
		b, ok := v.(bool)
		if !ok {
			return fmt.Errorf("needs true or false, not %s", tomlType(v))
		}
		*p = b
	case *int:
		n, ok := v.(int64)
		if !ok || n > math.MaxInt32 || n < math.MinInt32 {
			return fmt.Errorf("needs a whole number, not %s", tomlType(v))
		}
		*p = int(n)
	case *float64:
		switch n := v.(type) {
		case float64:
			*p = n
		case int64:
			*p = float64(n)
		default:
			return fmt.Errorf("needs a number, not %s", tomlType(v))
		}
	case *[]string:
		list, ok := v.([]any)
		if !ok {
			return fmt.Errorf("needs a list such as [\"a\", \"b\"], not %s", tomlType(v))
		}
		out := make([]string, 0, len(list))
		for i, e := range list {
			s, ok := e.(string)
			if !ok {
				return fmt.Errorf("item %d needs to be a string, not %s", i+1, tomlType(e))
			}
			out = append(out, s)
		}
		*p = out
	case *Size, *Duration:
		s, ok := v.(string)
		if !ok {
			if n, isInt := v.(int64); isInt {
				return unitError(ptr, strconv.FormatInt(n, 10))
			}
			return fmt.Errorf("%w with a unit, not %s", errWantString, tomlType(v))
		}
		return setText(ptr, s, auto)
	}
	return nil
}

func unitError(ptr any, n string) error {
	if _, ok := ptr.(*Size); ok {
		return fmt.Errorf("a bare number has no unit: write for example \"%sMiB\"", n)
	}
	return fmt.Errorf("a bare number has no unit: write for example \"%ss\"", n)
}

// setText stores a value given as text (environment, --set) into the field that ptr points to.
func setText(ptr any, s string, auto bool) error {
	var err error
	switch p := ptr.(type) {
	case *string:
		*p = s
	case *bool:
		switch s {
		case "true":
			*p = true
		case "false":
			*p = false
		default:
			return fmt.Errorf("%q is neither true nor false", s)
		}
	case *int:
		*p, err = strconv.Atoi(s)
		if err != nil {
			return fmt.Errorf("%q is not a whole number", s)
		}
	case *float64:
		*p, err = strconv.ParseFloat(s, 64)
		if err != nil || math.IsNaN(*p) || math.IsInf(*p, 0) {
			return fmt.Errorf("%q is not a number", s)
		}
	case *[]string:
		*p = splitList(s)
	case *Size:
		if auto && s == "auto" {
			*p = AutoSize
			return nil
		}
		*p, err = ParseSize(s)
	case *Duration:
		if auto && s == "auto" {
			*p = AutoDuration
			return nil
		}
		*p, err = ParseDuration(s)
	}
	return err
}

// splitList reads "a,b" or ["a", "b"].
func splitList(s string) []string {
	s = strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(s), "["), "]")
	out := []string{}
	for _, item := range strings.Split(s, ",") {
		item = strings.Trim(strings.TrimSpace(item), `"'`)
		if item != "" {
			out = append(out, item)
		}
	}
	return out
}

// quoteTOML writes a basic string of TOML, whose escapes are not Go's.
func quoteTOML(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range strings.ToValidUTF8(s, "\uFFFD") {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case unicode.IsControl(r):
			fmt.Fprintf(&b, `\u%04X`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// formatTOML prints the field that ptr points to as a TOML value.
func formatTOML(ptr any) string {
	switch p := ptr.(type) {
	case *string:
		return quoteTOML(*p)
	case *bool:
		return strconv.FormatBool(*p)
	case *int:
		return strconv.Itoa(*p)
	case *float64:
		s := strconv.FormatFloat(*p, 'f', -1, 64)
		if !strings.Contains(s, ".") {
			s += ".0"
		}
		return s
	case *[]string:
		quoted := make([]string, len(*p))
		for i, s := range *p {
			quoted[i] = quoteTOML(s)
		}
		return "[" + strings.Join(quoted, ", ") + "]"
	case *Size:
		return strconv.Quote(p.String())
	case *Duration:
		return strconv.Quote(p.String())
	}
	return ""
}

// typeName names the type of a setting for people.
func typeName(ptr any) string {
	switch ptr.(type) {
	case *string:
		return "string"
	case *bool:
		return "true or false"
	case *int:
		return "whole number"
	case *float64:
		return "number"
	case *[]string:
		return "list of strings"
	case *Size:
		return "size with unit (B, KiB, MiB, GiB, TiB, kB, MB, GB, TB)"
	case *Duration:
		return "duration with unit (ms, s, m, h, d)"
	}
	return ""
}

func tomlType(v any) string {
	switch v.(type) {
	case string:
		return "a string"
	case bool:
		return "a boolean"
	case int64:
		return "a whole number"
	case float64:
		return "a number"
	case []any:
		return "a list"
	case map[string]any:
		return "a table"
	}
	return "a date or time"
}
