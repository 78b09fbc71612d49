package metadata

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"
)

// Protobuf's text format as Java prints and reads it: one field a line, two spaces of indent, strings in double quotes with
// C escapes and octal for everything outside printable ASCII. Go's own text marshaller varies its white space on purpose
// and so cannot write files that Java compares byte by byte.

// textDepthMax bounds the nesting of messages. The deepest message of ours has one level.
const textDepthMax = 4

// textValue is one value of a field in a text message.
type textValue struct {
	name string
	kind textKind
	str  []byte      // textString: the bytes; textWord: the word as it stands
	msg  []textValue // textMessage
	off  int         // offset of the name, for errors
}

type textKind uint8

const (
	textWord    textKind = iota // number or enum name
	textString                  // quoted
	textMessage                 // in braces
)

// appendTextString appends a string or bytes field of a text message.
func appendTextString(b []byte, indent, name string, v []byte) []byte {
	b = append(append(append(b, indent...), name...), ": \""...)
	for _, c := range v {
		switch c {
		case '\a':
			b = append(b, `\a`...)
		case '\b':
			b = append(b, `\b`...)
		case '\f':
			b = append(b, `\f`...)
		case '\n':
			b = append(b, `\n`...)
		case '\r':
			b = append(b, `\r`...)
		case '\t':
			b = append(b, `\t`...)
		case '\v':
			b = append(b, `\v`...)
		case '\\', '\'', '"':
			b = append(b, '\\', c)
		default:
			if c >= 0x20 && c < 0x7f {
				b = append(b, c)
			} else {
				b = append(b, '\\', '0'+c>>6, '0'+c>>3&7, '0'+c&7)
			}
		}
	}
	return append(b, "\"\n"...)
}

// appendTextWord appends a number or enum field of a text message.
func appendTextWord(b []byte, indent, name, word string) []byte {
	b = append(append(append(b, indent...), name...), ": "...)
	return append(append(b, word...), '\n')
}

func appendTextInt(b []byte, indent, name string, v int64) []byte {
	return appendTextWord(b, indent, name, strconv.FormatInt(v, 10))
}

// textParser reads a text message.
type textParser struct {
	in  []byte
	pos int
}

// parseText reads a whole text message into its fields, in order.
func parseText(b []byte) ([]textValue, error) {
	p := textParser{in: b}
	fields, err := p.message(0, 0)
	if err != nil {
		return nil, fmt.Errorf("offset %d: %w", p.pos, err)
	}
	return fields, nil
}

// skip passes white space and comments.
func (p *textParser) skip() {
	for p.pos < len(p.in) {
		switch p.in[p.pos] {
		case ' ', '\t', '\n', '\r', '\f', '\v':
			p.pos++
		case '#':
			n := bytes.IndexByte(p.in[p.pos:], '\n')
			if n < 0 {
				p.pos = len(p.in)
				return
			}
			p.pos += n + 1
		default:
			return
		}
	}
}

// next returns the next byte that is not white space, without taking it; 0 is the end.
func (p *textParser) next() byte {
	p.skip()
	if p.pos == len(p.in) {
		return 0
	}
	return p.in[p.pos]
}

// take takes the next byte that is not white space if it is c.
func (p *textParser) take(c byte) bool {
	if p.next() != c || c == 0 {
		return false
	}
	p.pos++
	return true
}

// message reads fields up to the closing byte (0: the end of input).
func (p *textParser) message(end byte, depth int) ([]textValue, error) {
	if depth > textDepthMax {
		return nil, errors.New("messages nested too deeply")
	}
	var out []textValue
	for {
		c := p.next()
		if c == end {
			if end != 0 {
				p.pos++
			}
			if end == 0 && p.pos < len(p.in) {
				return nil, errors.New("zero byte")
			}
			return out, nil
		}
		off := p.pos
		name := p.word()
		if name == "" {
			return nil, errors.New("a field name was expected")
		}
		colon := p.take(':')
		vals, err := p.values(colon, depth)
		if err != nil {
			return nil, fmt.Errorf("field %.40q: %w", name, err)
		}
		for i := range vals {
			vals[i].name, vals[i].off = name, off
		}
		out = append(out, vals...)
		if !p.take(',') {
			p.take(';')
		}
	}
}

// values reads one value, or a bracketed list of them.
func (p *textParser) values(colon bool, depth int) ([]textValue, error) {
	if !p.take('[') {
		v, err := p.value(colon, depth)
		return []textValue{v}, err
	}
	var out []textValue
	if p.take(']') {
		return nil, nil
	}
	for {
		v, err := p.value(colon, depth)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
		if p.take(']') {
			return out, nil
		}
		if !p.take(',') {
			return nil, errors.New("a list lacks ',' or ']'")
		}
	}
}

func (p *textParser) value(colon bool, depth int) (textValue, error) {
	switch c := p.next(); {
	case c == '{' || c == '<':
		p.pos++
		end := byte('}')
		if c == '<' {
			end = '>'
		}
		msg, err := p.message(end, depth+1)
		return textValue{kind: textMessage, msg: msg}, err
	case !colon:
		return textValue{}, errors.New("':' was expected")
	case c == '"' || c == '\'':
		var s []byte
		for q := c; q == '"' || q == '\''; q = p.next() { // adjacent strings are one
			var err error
			if s, err = p.quoted(s, q); err != nil {
				return textValue{}, err
			}
		}
		return textValue{kind: textString, str: s}, nil
	}
	w := ""
	if p.take('-') {
		w = "-"
		p.skip()
	}
	n := p.word()
	if n == "" {
		return textValue{}, errors.New("a value was expected")
	}
	return textValue{kind: textWord, str: []byte(w + n)}, nil
}

// word takes a run of letters, digits, '_', '.' and '+'.
func (p *textParser) word() string {
	p.skip()
	start := p.pos
	for p.pos < len(p.in) {
		c := p.in[p.pos]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '.' || c == '+' {
			p.pos++
			continue
		}
		break
	}
	return string(p.in[start:p.pos])
}

// quoted takes a string in quotes q and appends its bytes.
func (p *textParser) quoted(out []byte, q byte) ([]byte, error) {
	p.pos++
	for p.pos < len(p.in) {
		c := p.in[p.pos]
		p.pos++
		switch c {
		case q:
			return out, nil
		case '\n':
			return nil, errors.New("a string is not closed on its line")
		case '\\':
			var err error
			if out, err = p.escape(out); err != nil {
				return nil, err
			}
		default:
			out = append(out, c)
		}
	}
	return nil, errors.New("a string is not closed")
}

// escape takes what follows a backslash.
func (p *textParser) escape(out []byte) ([]byte, error) {
	if p.pos == len(p.in) {
		return nil, errors.New("a string is not closed")
	}
	c := p.in[p.pos]
	p.pos++
	switch c {
	case 'a':
		return append(out, '\a'), nil
	case 'b':
		return append(out, '\b'), nil
	case 'f':
		return append(out, '\f'), nil
	case 'n':
		return append(out, '\n'), nil
	case 'r':
		return append(out, '\r'), nil
	case 't':
		return append(out, '\t'), nil
	case 'v':
		return append(out, '\v'), nil
	case '\\', '\'', '"', '?':
		return append(out, c), nil
	case 'x', 'X':
		v, n := p.digits(16, 2)
		if n == 0 {
			return nil, errors.New(`\x without hex digits`)
		}
		return append(out, byte(v)), nil
	case 'u', 'U':
		want := 4
		if c == 'U' {
			want = 8
		}
		v, n := p.digits(16, want)
		if n != want || !utf8.ValidRune(rune(v)) {
			return nil, fmt.Errorf(`\%c without a valid code point`, c)
		}
		return utf8.AppendRune(out, rune(v)), nil
	}
	if c >= '0' && c <= '7' {
		p.pos--
		v, _ := p.digits(8, 3)
		if v > 255 {
			return nil, errors.New("an octal escape exceeds a byte")
		}
		return append(out, byte(v)), nil
	}
	return nil, fmt.Errorf("unknown escape %q", c)
}

// digits takes up to limit digits of a base and returns their value and count.
func (p *textParser) digits(base uint32, limit int) (v uint32, n int) {
	for n < limit && p.pos < len(p.in) {
		var d uint32
		switch c := p.in[p.pos]; {
		case c >= '0' && c <= '9':
			d = uint32(c - '0')
		case c >= 'a' && c <= 'f':
			d = uint32(c-'a') + 10
		case c >= 'A' && c <= 'F':
			d = uint32(c-'A') + 10
		default:
			return v, n
		}
		if d >= base {
			return v, n
		}
		v = v*base + d
		p.pos++
		n++
	}
	return v, n
}

// int returns the value of a number field.
func (v textValue) int() (int64, error) {
	if v.kind != textWord {
		return 0, fmt.Errorf("field %.40q is not a number", v.name)
	}
	n, err := strconv.ParseInt(string(v.str), 0, 64)
	if err != nil {
		return 0, fmt.Errorf("field %.40q: %.40q is not a number", v.name, v.str)
	}
	return n, nil
}

// bytes returns the value of a string or bytes field.
func (v textValue) bytes() ([]byte, error) {
	if v.kind != textString {
		return nil, fmt.Errorf("field %.40q is not a string", v.name)
	}
	return v.str, nil
}
