package result

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
)

func TestNothingThatATerminalActsOnComesIn(t *testing.T) {
	for doc, want := range map[string]string{
		`"plain é \\u001b \" \t\n/"`:    `"plain é \\u001b \" \t\n/"`,
		`"\u001b]0;title\u0007"`:        "\"\ufffd]0;title\ufffd\"",
		`"\b\f\r\u007f\u009B31m\u00e9"`: "\"\ufffd\ufffd\ufffd\ufffd\ufffd31m\\u00e9\"",
		"\"\x7f\u009b\u00a0\"":          "\"\ufffd\ufffd\u00a0\"",
		"{\r\n\"a\":\"\\\\\\u001b\"}":   "{\r\n\"a\":\"\\\\\ufffd\"}",
		`"\u00`:                         `"\u00`,
		`"\`:                            `"\`,
	} {
		require.Equal(t, want, string(printable([]byte(doc))), doc)
	}
	r := exampleRun(1)
	r.Environment.Host, r.Device.Model = "h\x1b]0;pwned\a", "m\x1b[2J\u009b"
	data, err := json.Marshal(r)
	require.NoError(t, err)
	runs, err := Decode(strings.NewReader(string(data)))
	require.NoError(t, err)
	require.Equal(t, "h\ufffd]0;pwned\ufffd", runs[0].Environment.Host)
	require.Equal(t, "m\ufffd[2J\ufffd", runs[0].Device.Model)
}

func FuzzPrintable(f *testing.F) {
	f.Add([]byte(`{"a":"\u001b[31m","b":"\\"}`))
	f.Add([]byte("\"\u009b\x7f\""))
	f.Fuzz(func(t *testing.T, doc []byte) {
		if !json.Valid(doc) {
			return
		}
		var v any
		require.NoError(t, json.Unmarshal(printable(doc), &v), "%q", doc)
		if s, ok := v.(string); ok {
			require.False(t, strings.ContainsFunc(s, func(c rune) bool { return unicode.IsControl(c) && c != '\t' && c != '\n' }), "%q", s)
		}
	})
}
