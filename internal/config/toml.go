package config

import (
	"errors"
	"fmt"
	"sort"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// item is one value of a file.
type item struct {
	key        string
	value      any
	line       int
	wrongTable bool // the key names a table of settings but holds a value
}

// parseTOML returns the values of a file in the order of their lines.
func parseTOML(name string, data []byte) ([]item, *Problem) {
	tree := map[string]any{}
	if err := toml.Unmarshal(data, &tree); err != nil {
		return nil, tomlProblem(name, err)
	}
	lines := keyLines(data)
	var items []item
	flatten("", tree, func(it item) {
		it.line = lineOf(lines, it.key)
		items = append(items, it)
	})
	sort.Slice(items, func(i, j int) bool {
		if items[i].line != items[j].line {
			return items[i].line < items[j].line
		}
		return items[i].key < items[j].key
	})
	return items, nil
}

// tomlProblem words a syntax error of the TOML library with its line and column.
func tomlProblem(name string, err error) *Problem {
	var d *toml.DecodeError
	if errors.As(err, &d) {
		row, col := d.Position()
		return &Problem{Where: fmt.Sprintf("%s:%d:%d", name, row, col), Msg: tomlMessage(strings.TrimPrefix(d.Error(), "toml: "))}
	}
	return &Problem{Where: name, Msg: strings.TrimPrefix(err.Error(), "toml: ")}
}

// tomlMessage words the library's complaints about a value for people, whose usual slip is a string without quotes.
func tomlMessage(msg string) string {
	switch {
	case msg == "unexpected character U+000A at start of value":
		return "not valid TOML: a value is missing"
	case strings.HasPrefix(msg, "expected keyword"), strings.HasSuffix(msg, "at start of value"), strings.HasPrefix(msg, "expected newline"), msg == "strings must be quoted":
		return "not valid TOML (strings need quotes)"
	}
	return msg
}

// flatten walks the tables down to the settings.
func flatten(prefix string, tree map[string]any, emit func(item)) {
	for k, v := range tree {
		key := k
		if prefix != "" {
			key = prefix + "." + k
		}
		table, isTable := v.(map[string]any)
		_, isSetting := settingByKey[key]
		switch {
		case isTable && !isSetting && isSection(key):
			flatten(key, table, emit)
		case !isTable && !isSetting && isSection(key):
			emit(item{key: key, wrongTable: true})
		case isTable && !isSetting && len(table) > 0:
			flatten(key, table, emit) // unknown table: each of its keys is reported with its own line
		default:
			emit(item{key: key, value: v})
		}
	}
}

func isSection(key string) bool {
	for _, s := range settings {
		if strings.HasPrefix(s.Key, key+".") {
			return true
		}
	}
	return false
}

// keyLines maps each key and table of a file that parses to its line.
func keyLines(data []byte) map[string]int {
	lines := map[string]int{}
	p := unstable.Parser{}
	p.Reset(data)
	table := ""
	for p.NextExpression() {
		e := p.Expression()
		switch e.Kind {
		case unstable.Table, unstable.ArrayTable:
			var line int
			table, line = joinKey(&p, "", e.Key())
			note(lines, table, line)
		case unstable.KeyValue:
			noteKeyValue(&p, lines, table, e)
		}
	}
	return lines
}

func noteKeyValue(p *unstable.Parser, lines map[string]int, table string, e *unstable.Node) {
	key, line := joinKey(p, table, e.Key())
	note(lines, key, line)
	if v := e.Value(); v.Kind == unstable.InlineTable {
		it := v.Children()
		for it.Next() {
			noteKeyValue(p, lines, key, it.Node())
		}
	}
}

func note(lines map[string]int, key string, line int) {
	if _, ok := lines[key]; !ok {
		lines[key] = line
	}
}

func joinKey(p *unstable.Parser, prefix string, it unstable.Iterator) (string, int) {
	line := 0
	for it.Next() {
		n := it.Node()
		if line == 0 {
			line = p.Shape(n.Raw).Start.Line
		}
		if prefix != "" {
			prefix += "."
		}
		prefix += string(n.Data)
	}
	return prefix, line
}

// lineOf finds the line of a key, or of the nearest table above it.
func lineOf(lines map[string]int, key string) int {
	for {
		if n, ok := lines[key]; ok {
			return n
		}
		i := strings.LastIndexByte(key, '.')
		if i < 0 {
			return 1
		}
		key = key[:i]
	}
}
