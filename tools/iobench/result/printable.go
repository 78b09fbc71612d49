package result

import (
	"bytes"
	"strconv"
)

// replacement stands for a character that a terminal would act on.
const replacement = "\ufffd"

// printable returns a JSON document whose texts hold no control characters but tabs and line ends: results come from other machines, and what
// they say is printed. Each of the others becomes U+FFFD. A document without any comes back as it is.
func printable(doc []byte) []byte {
	var out []byte
	kept := 0 // doc[:kept] is in out
	for i := 0; i < len(doc); {
		n, control := controlAt(doc[i:])
		if control {
			out = append(append(out, doc[kept:i]...), replacement...)
			kept = i + n
		}
		i += n
	}
	if out == nil {
		return doc
	}
	return append(out, doc[kept:]...)
}

// controlAt says how many bytes the next piece of a document takes, and whether it is a control character, written plainly or escaped. What
// is below a space stands in JSON only escaped, or between values, where it prints nothing.
func controlAt(b []byte) (n int, control bool) {
	switch {
	case b[0] == 0x7f:
		return 1, true
	case bytes.HasPrefix(b, []byte{0xc2}) && len(b) > 1 && b[1] >= 0x80 && b[1] < 0xa0:
		return 2, true
	case b[0] != '\\' || len(b) < 2:
		return 1, false
	case b[1] == 'b' || b[1] == 'f' || b[1] == 'r':
		return 2, true
	case b[1] != 'u' || len(b) < 6:
		return 2, false
	}
	v, err := strconv.ParseUint(string(b[2:6]), 16, 16)
	return 6, err == nil && (v < ' ' && v != '\t' && v != '\n' || v >= 0x7f && v < 0xa0)
}
