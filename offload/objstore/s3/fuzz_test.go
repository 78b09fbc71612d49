package s3

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func FuzzContentRange(f *testing.F) {
	for _, text := range []string{"bytes 0-9/10", "bytes 5-4/10", "bytes 0-9/*", "bytes */10", "", "bytes 9223372036854775807-9223372036854775807/9223372036854775807"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		first, last, total, ok := contentRange(text)
		if !ok {
			return
		}
		require.True(t, 0 <= first && first <= last && last < total, "%q", text)
		again, _, _, ok := contentRange(fmt.Sprintf("bytes %d-%d/%d", first, last, total))
		require.True(t, ok)
		require.Equal(t, first, again)
	})
}

func FuzzAnswer(f *testing.F) {
	f.Add([]byte(`<?xml version="1.0"?><Error><Code>NoSuchKey</Code><Message>none</Message><Region>r</Region></Error>`))
	f.Add([]byte("<html>\n\x00not found</html>"))
	f.Add(bytes.Repeat([]byte("x"), 2*errorBodyMax))
	f.Fuzz(func(t *testing.T, b []byte) {
		a := readAnswer(bytes.NewReader(b))
		require.LessOrEqual(t, len(a.text), 210)
		require.LessOrEqual(t, len(a.Message), 210)
		require.LessOrEqual(t, a.length, errorBodyMax)
		require.NotContains(t, a.text+a.Message, "\n")
		require.False(t, a.Code != "" && a.text != "", "either S3's words or others")
	})
}

func FuzzCredentialFile(f *testing.F) {
	f.Add([]byte(`{"access_key":"a","secret_key":"s","expires":"2026-01-02T03:04:05Z"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := decodeJSON("file", b)
		require.Equal(t, err == nil, s.accessKey != "" && s.secretKey != "")
		if err != nil {
			require.Less(t, len(err.Error()), 100, "nothing of the file is quoted")
		}
	})
}
