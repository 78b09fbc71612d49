package driver_test

import (
	"bytes"
	"encoding/base64"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/offload"
	"github.com/binderylog/bindery/offload/objstore/driver"
)

func keyText(b byte) string {
	return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{b}, 32))
}

func TestKeySources(t *testing.T) {
	dir := t.TempDir()
	text := "# keys\nk1 = " + keyText(1) + "\nk2=" + keyText(2) + " # the new one\n"
	file := filepath.Join(dir, "keys")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	t.Setenv("TIER_KEYS", "k1="+keyText(1)+",k2="+keyText(2))
	program := filepath.Join(dir, "print")
	require.NoError(t, os.WriteFile(program, []byte("#!/bin/sh\ncat \"$1\"\n"), 0o700)) //nolint:gosec // it is run
	for _, source := range []string{"file:" + file, "env:TIER_KEYS", "command:" + program + " " + file} {
		s, err := driver.OpenKeys(source, "k2", true)
		require.NoError(t, err)
		keys, err := s.Load(t.Context())
		require.NoError(t, err, source)
		require.Equal(t, map[string][]byte{"k1": bytes.Repeat([]byte{1}, 32), "k2": bytes.Repeat([]byte{2}, 32)}, keys.ByID)
		dataKey := bytes.Repeat([]byte{9}, 32)
		wrapped, err := s.Wrap(t.Context(), dataKey)
		require.NoError(t, err)
		require.Equal(t, "k2", wrapped.KeyID)
		got, err := s.Unwrap(t.Context(), wrapped)
		require.NoError(t, err)
		require.Equal(t, dataKey, got)
	}
	s, err := driver.OpenKeys("", "", false)
	require.NoError(t, err)
	require.Nil(t, s)
}

func TestKeySourcesThatAreWrongSayWhatToChange(t *testing.T) {
	dir := t.TempDir()
	file := func(text string) string {
		name := filepath.Join(dir, "keys")
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
		return "file:" + name
	}
	_, err := driver.OpenKeys(keyText(7), "", false)
	require.ErrorContains(t, err, "a key itself never stands there")
	require.NotContains(t, err.Error(), keyText(7))
	_, err = driver.OpenKeys("command:print-keys", "", false)
	require.ErrorContains(t, err, "absolute")
	for source, says := range map[string]string{
		"file:" + filepath.Join(dir, "absent"): "no such file", "env:NOT_SET_ANYWHERE": "the variable is not set", "command:/bin/false": "exit status 1",
	} {
		s, err := driver.OpenKeys(source, "", false)
		require.NoError(t, err)
		_, err = s.Load(t.Context())
		require.ErrorContains(t, err, says)
	}
	for text, c := range map[string]struct{ current, says string }{
		"# nothing\n": {"", "there is no key"},
		"k1 = " + keyText(1) + "\nk2 = " + keyText(2): {"", "several keys (k1, k2)"},
		"k1 = " + keyText(1):                          {"k3", `no key "k3"; there are: k1`},
		"k1 = " + keyText(1) + "\nk1 = " + keyText(2): {"", `line 2: key "k1" stands there twice`},
		"\nk1 = c2hvcnQ=":                             {"", `line 2: key "k1" is not 32 bytes in base64`},
		"k1":                                          {"", "line 1 is not `id = key`"},
	} {
		s, err := driver.OpenKeys(file(text), c.current, true)
		require.NoError(t, err)
		_, err = s.Load(t.Context())
		require.ErrorContains(t, err, c.says)
		require.NotContains(t, err.Error(), keyText(1))
	}
}

func FuzzParseKeys(f *testing.F) {
	f.Add([]byte("k = " + keyText(3) + "\n# x\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		k, err := offload.ParseKeys(text)
		if err != nil {
			return
		}
		for id, key := range k.ByID {
			if id == "" || len(key) != 32 {
				t.Fatalf("key %q of %d bytes", id, len(key))
			}
		}
	})
}
