package config

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"unicode"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// Edit is a value that Merge puts into a file.
type Edit struct {
	Key     string // "journal.io"
	Value   string // as it stands in TOML: "\"dsync\""
	Comment string // why, in one line; may be empty
}

// Merge puts values into the text of a configuration file. Everything else stays as it is, byte for byte: comments, order,
// blank lines, line ends, keys that this version does not know. A comment of an edit begins with mark; it stands behind
// the value, or above it where somebody's own comment is behind it, and takes the place of an earlier one of that mark. A
// value that the file has already is left alone with its comments, so that a second Merge changes nothing.
func Merge(text []byte, mark string, edits []Edit) ([]byte, error) {
	if len(text) > fileBytesMax {
		return nil, errors.New("configuration is larger than 1 MiB")
	}
	for _, c := range edits {
		merged, err := mergeOne(text, mark, c)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.Key, err)
		}
		text = merged
	}
	return text, nil
}

func mergeOne(text []byte, mark string, c Edit) ([]byte, error) {
	value, err := c.check(mark)
	if err != nil {
		return nil, err
	}
	before, err := tomlTree(text)
	if err != nil {
		return nil, err
	}
	if old, ok := lookUp(before, c.Key); ok && reflect.DeepEqual(old, value) {
		return text, nil
	}
	e := newEditor(text, mark)
	merged := e.put(c)
	// What is written is read back: the value is there, and no other has changed.
	after, err := tomlTree(merged)
	if err != nil {
		return nil, fmt.Errorf("can not be put into this file by a program, write it yourself: %w", err)
	}
	got, ok := lookUp(after, c.Key)
	remove(before, c.Key)
	remove(after, c.Key)
	if !ok || !reflect.DeepEqual(got, value) || !reflect.DeepEqual(before, after) {
		return nil, errors.New("can not be put into this file by a program without touching other settings; write it yourself")
	}
	return merged, nil
}

// check tests that the edit is a setting of ours with a value of its type, and returns the value.
func (c *Edit) check(mark string) (any, error) {
	s, ok := settingByKey[c.Key]
	if !ok {
		return nil, errors.New(unknownKey(c.Key))
	}
	if strings.ContainsFunc(c.Value+c.Comment+mark, unicode.IsControl) {
		return nil, errors.New("value or comment holds a control character")
	}
	tree, err := tomlTree([]byte("value = " + c.Value))
	if err != nil || len(tree) != 1 {
		return nil, fmt.Errorf("%s is not a value", c.Value)
	}
	if err := setTOML(s.field(&Config{}), tree["value"], s.Auto); err != nil {
		return nil, err
	}
	return tree["value"], nil
}

func tomlTree(text []byte) (map[string]any, error) {
	tree := map[string]any{}
	if err := toml.Unmarshal(text, &tree); err != nil {
		return nil, errors.New(tomlProblem("line", err).String())
	}
	return tree, nil
}

// lookUp follows a dotted key down the tables.
func lookUp(tree map[string]any, key string) (any, bool) {
	first, rest, nested := strings.Cut(key, ".")
	v, ok := tree[first]
	if !nested || !ok {
		return v, ok
	}
	table, ok := v.(map[string]any)
	if !ok {
		return nil, false
	}
	return lookUp(table, rest)
}

// remove deletes a key, and tables that are then empty.
func remove(tree map[string]any, key string) {
	first, rest, nested := strings.Cut(key, ".")
	if !nested {
		delete(tree, first)
		return
	}
	if table, ok := tree[first].(map[string]any); ok {
		if remove(table, rest); len(table) == 0 {
			delete(tree, first)
		}
	}
}

// place is where a value, or a table, stands in the text.
type place struct {
	key        string
	start      int // of the expression
	value      int // of the value; of '{' of an inline table
	end        int // behind the value
	lastEnd    int // inline table: behind its last value, or behind '{'
	empty      bool
	inline     bool   // the value is an inline table
	within     bool   // the value stands inside an inline table
	outerStart int    // of the whole expression that it stands in
	outerEnd   int    // behind it
	table      string // the header that it stands under
}

// editor knows where everything stands in a text that parses.
type editor struct {
	text    []byte
	mark    string
	eol     string
	values  []place
	headers []place // start and end are those of the header's line
}

func newEditor(text []byte, mark string) *editor {
	e := &editor{text: text, mark: "# " + mark + " ", eol: "\n"}
	if i := bytes.IndexByte(text, '\n'); i > 0 && text[i-1] == '\r' {
		e.eol = "\r\n"
	}
	p := unstable.Parser{}
	p.Reset(text)
	table := ""
	for p.NextExpression() {
		x := p.Expression()
		switch x.Kind {
		case unstable.Table, unstable.ArrayTable:
			key, at, _ := keyOf(x.Key())
			table = key
			if x.Kind == unstable.ArrayTable {
				table = "[]" + key // no setting of ours stands under one
			}
			e.headers = append(e.headers, place{key: table, start: e.lineStart(at), end: e.lineEnd(at), table: table})
		case unstable.KeyValue:
			start := int(x.Raw.Offset)
			e.note(x, table, place{table: table, outerStart: start, outerEnd: start + int(x.Raw.Length)})
		}
	}
	return e
}

// note records a value, and those of an inline table.
func (e *editor) note(x *unstable.Node, prefix string, outer place) {
	key, _, keyEnd := keyOf(x.Key())
	if prefix != "" {
		key = prefix + "." + key
	}
	p := outer
	p.key, p.start, p.end = key, int(x.Raw.Offset), int(x.Raw.Offset+x.Raw.Length)
	p.value = keyEnd + bytes.IndexByte(e.text[keyEnd:], '=') + 1
	for p.value < p.end && (e.text[p.value] == ' ' || e.text[p.value] == '\t') {
		p.value++
	}
	v := x.Value()
	p.inline = v.Kind == unstable.InlineTable
	p.lastEnd, p.empty = p.value+1, true
	if p.inline {
		inner := outer
		inner.within = true
		it := v.Children()
		for it.Next() {
			if n := it.Node(); n.Kind == unstable.KeyValue {
				p.lastEnd, p.empty = int(n.Raw.Offset+n.Raw.Length), false
				e.note(n, key, inner)
			}
		}
	}
	e.values = append(e.values, p)
}

// keyOf joins a key and says where its first part begins and its last one ends.
func keyOf(it unstable.Iterator) (key string, start, end int) {
	start = -1
	for it.Next() {
		n := it.Node()
		if start < 0 {
			start = int(n.Raw.Offset)
		} else {
			key += "."
		}
		key += string(n.Data)
		end = int(n.Raw.Offset + n.Raw.Length)
	}
	return key, start, end
}

func (e *editor) lineStart(at int) int { return bytes.LastIndexByte(e.text[:at], '\n') + 1 }

// lineEnd is where the line's end begins.
func (e *editor) lineEnd(at int) int {
	i := bytes.IndexByte(e.text[at:], '\n')
	if i < 0 {
		return len(e.text)
	}
	i += at
	if i > at && e.text[i-1] == '\r' {
		i--
	}
	return i
}

// LoadTextAs reads text as Load reads the file that o names, which it stands for in messages.
func LoadTextAs(o Options, text []byte) (*Loaded, error) {
	return loadFrom(o, func(l *Loaded) (ProblemsError, bool, error) {
		problems, readable := l.applyFile(o.File, text, o.Lenient)
		return problems, readable, nil
	})
}
