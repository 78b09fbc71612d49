package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Property is one key of a Java properties file, as BookKeeper's configuration is written.
type Property struct {
	Key, Value string
	Where      string // "bk_server.conf:12" or "environment BK_zkServers"
}

// ParseProperties reads Java's properties syntax: key=value, key:value or "key value", comments with # or !, a backslash
// at the end of a line that goes on, and escapes. Of a key that occurs twice the last one counts, in the place of the first.
func ParseProperties(name string, data []byte) ([]Property, error) {
	if len(data) > fileBytesMax {
		return nil, fmt.Errorf("configuration %s is larger than 1 MiB", name)
	}
	var out []Property
	seen := map[string]int{}
	lines := strings.Split(strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(string(data)), "\n")
	for n := 0; n < len(lines); n++ {
		first := n
		line := strings.TrimLeft(lines[n], " \t\f")
		if line == "" || line[0] == '#' || line[0] == '!' {
			continue
		}
		for continues(line) && n+1 < len(lines) {
			n++
			line = line[:len(line)-1] + strings.TrimLeft(lines[n], " \t\f")
		}
		if continues(line) {
			line = line[:len(line)-1]
		}
		where := fmt.Sprintf("%s:%d", name, first+1)
		rawKey, rawValue := splitProperty(line)
		key, err := unescapeProperty(rawKey)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", where, err)
		}
		value, err := unescapeProperty(rawValue)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", where, err)
		}
		if i, twice := seen[key]; twice {
			out[i] = Property{key, value, where}
			continue
		}
		seen[key] = len(out)
		out = append(out, Property{key, value, where})
	}
	return out, nil
}

// continues says whether a line ends in an odd number of backslashes.
func continues(line string) bool {
	n := len(line) - len(strings.TrimRight(line, "\\"))
	return n%2 == 1
}

// splitProperty cuts a line at its first separator that is not escaped.
func splitProperty(line string) (key, value string) {
	end := len(line)
	for i := 0; i < len(line); i++ {
		if line[i] == '\\' {
			i++
			continue
		}
		if strings.IndexByte("=: \t\f", line[i]) >= 0 {
			end = i
			break
		}
	}
	value = strings.TrimLeft(line[end:], " \t\f")
	if value != "" && (value[0] == '=' || value[0] == ':') {
		value = strings.TrimLeft(value[1:], " \t\f")
	}
	return line[:end], value
}

func unescapeProperty(s string) (string, error) {
	if !strings.Contains(s, "\\") {
		return s, nil
	}
	var b strings.Builder
	var units []uint16 // of \u escapes in a row, which may be halves of one character
	flush := func() {
		for _, r := range utf16.Decode(units) {
			b.WriteRune(r)
		}
		units = units[:0]
	}
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			flush()
			b.WriteByte(s[i])
			continue
		}
		i++
		if s[i] == 'u' {
			if i+4 >= len(s) {
				return "", fmt.Errorf("%.20q: \\u needs four digits", s[i-1:])
			}
			u, err := strconv.ParseUint(s[i+1:i+5], 16, 16)
			if err != nil {
				return "", fmt.Errorf("%.20q: \\u needs four digits", s[i-1:])
			}
			units = append(units, uint16(u))
			i += 4
			continue
		}
		flush()
		switch s[i] {
		case 't':
			b.WriteByte('\t')
		case 'n':
			b.WriteByte('\n')
		case 'r':
			b.WriteByte('\r')
		case 'f':
			b.WriteByte('\f')
		default:
			_, size := utf8.DecodeRuneInString(s[i:])
			b.WriteString(s[i : i+size])
			i += size - 1
		}
	}
	flush()
	return b.String(), nil
}

// OverrideProperties puts the values of over in the place of those of base, or behind them.
func OverrideProperties(base, over []Property) []Property {
	out := append([]Property(nil), base...)
	at := map[string]int{}
	for i, p := range out {
		at[p.Key] = i
	}
	for _, p := range over {
		if i, ok := at[p.Key]; ok {
			out[i] = p
			continue
		}
		at[p.Key] = len(out)
		out = append(out, p)
	}
	return out
}

// EnvironmentProperties returns the variables that begin with prefix as properties, as BookKeeper's and Pulsar's container
// images put them into the file before a start.
func EnvironmentProperties(prefix string, environ []string) []Property {
	var out []Property
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		if key, ok := strings.CutPrefix(name, prefix); ok && key != "" && prefix != "" {
			out = append(out, Property{key, value, "environment " + name})
		}
	}
	slices.SortFunc(out, func(a, b Property) int { return strings.Compare(a.Key, b.Key) })
	return out
}
