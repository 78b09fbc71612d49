package bookie

import (
	"hash/crc32"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/corrupt"
	"github.com/binderylog/bindery/internal/metadata"
)

var goldenStamp = stamp{
	Bookie: "b1:3181", Instance: "3f0c9f1e-1111-4222-8333-444455556666", Kinds: "journal,ledger",
	Directory: "6c1d0000-1111-4222-8333-444455556666", Number: 3, Incarnation: "0b7a0000-1111-4222-8333-444455556666",
	Epoch: 12, State: stampReady,
}

const goldenStampText = `bindery directory format 1
bookie b1:3181
instance 3f0c9f1e-1111-4222-8333-444455556666
kinds journal,ledger
directory 6c1d0000-1111-4222-8333-444455556666
incarnation 3 0b7a0000-1111-4222-8333-444455556666
epoch 0000000012
state ready
crc32c f3c3ecf1
`

func TestStampGolden(t *testing.T) {
	require.Equal(t, goldenStampText, string(goldenStamp.encode()))
	got, err := decodeStamp("FORMAT", []byte(goldenStampText))
	require.NoError(t, err)
	require.Equal(t, goldenStamp, *got)
	got, err = decodeStamp("FORMAT", resum(strings.Replace(goldenStampText, "epoch 0000000012", "epoch 12", 1)))
	require.NoError(t, err, "an epoch without padding is read")
	require.Equal(t, goldenStamp, *got)
}

// resum puts the right checksum under a changed stamp, so that the fields behind it are looked at.
func resum(text string) []byte {
	body := text[:strings.LastIndex(text, "crc32c ")]
	return append([]byte(body), []byte("crc32c "+hex8(crc32.Checksum([]byte(body), stampTable))+"\n")...)
}

func hex8(v uint32) string {
	const digits = "0123456789abcdef"
	b := make([]byte, 8)
	for i := range b {
		b[i] = digits[v>>(28-4*i)&15]
	}
	return string(b)
}

func TestStampRejections(t *testing.T) {
	for name, edit := range map[string]func(string) []byte{
		"empty":        func(string) []byte { return nil },
		"no line feed": func(string) []byte { return []byte("bindery directory format 1") },
		"other file":   func(string) []byte { return []byte("5\nbookieHost: \"b1\"\n") },
		"version 0":    func(s string) []byte { return resum(strings.Replace(s, "format 1", "format 0", 1)) },
		"no checksum":  func(s string) []byte { return []byte(s[:strings.Index(s, "crc32c")]) },
		"cut checksum": func(s string) []byte { return []byte(s[:len(s)-1]) },
		"trailing":     func(s string) []byte { return []byte(s + "x") },
		"line missing": func(s string) []byte { return resum(strings.Replace(s, "epoch 0000000012\n", "", 1)) },
		"line twice": func(s string) []byte {
			return resum(strings.Replace(s, "epoch 0000000012\n", "epoch 0000000012\nepoch 0000000012\n", 1))
		},
		"order":          func(s string) []byte { return resum(strings.Replace(s, "kinds", "kind", 1)) },
		"epoch 0":        func(s string) []byte { return resum(strings.Replace(s, "epoch 0000000012", "epoch 0", 1)) },
		"epoch negative": func(s string) []byte { return resum(strings.Replace(s, "epoch 0000000012", "epoch -1", 1)) },
		"epoch too large": func(s string) []byte {
			return resum(strings.Replace(s, "epoch 0000000012", "epoch 18446744073709551615", 1))
		},
		"incarnation 0": func(s string) []byte { return resum(strings.Replace(s, "incarnation 3", "incarnation 0", 1)) },
		"no incarnation": func(s string) []byte {
			return resum(strings.Replace(s, "incarnation 3 0b7a0000-1111-4222-8333-444455556666", "incarnation 3", 1))
		},
		"state":  func(s string) []byte { return resum(strings.Replace(s, "state ready", "state fine", 1)) },
		"bookie": func(s string) []byte { return resum(strings.Replace(s, "b1:3181", "b1 3181", 1)) },
		"huge":   func(s string) []byte { return []byte(strings.Repeat(s, 100)) },
	} {
		t.Run(name, func(t *testing.T) {
			_, err := decodeStamp("/d/current/FORMAT", edit(goldenStampText))
			var c *corrupt.Error
			require.ErrorAs(t, err, &c)
			require.Equal(t, "/d/current/FORMAT", c.Path)
		})
	}
	_, err := decodeStamp("FORMAT", []byte("bindery directory format 2\nanything"))
	require.ErrorIs(t, err, metadata.ErrFormatTooNew)
	require.False(t, corrupt.Is(err))
	// Every single flipped bit behind the first line is noticed; in it, it may at worst look like a newer version.
	for i := range len(goldenStampText) * 8 {
		b := []byte(goldenStampText)
		b[i/8] ^= 1 << (i % 8)
		_, err := decodeStamp("FORMAT", b)
		require.Error(t, err, "bit %d", i)
	}
}

func FuzzDecodeStamp(f *testing.F) {
	f.Add([]byte(goldenStampText))
	f.Add([]byte("bindery directory format 2\n"))
	f.Add([]byte("bindery directory format 1\ncrc32c 00000000\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := decodeStamp("FORMAT", b)
		if err != nil {
			return
		}
		again, err := decodeStamp("FORMAT", s.encode())
		if err != nil || *again != *s {
			t.Fatalf("%+v became %+v (%v)", s, again, err)
		}
	})
}

func FuzzDecodeGCCounter(f *testing.F) {
	f.Add(gcCounter{41, 40}.encode())
	f.Add([]byte("gc 1 2\ncrc32c 00000000\n"))
	f.Add(sumLine("gc 41 40\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := decodeGCCounter("GC", b)
		if again, aerr := decodeGCCounter("GC", c.encode()); err == nil && (aerr != nil || again != c || c.confirmed > c.intended) {
			t.Fatalf("%q decoded to %+v, and that to %+v (%v)", b, c, again, aerr)
		}
		if err != nil && !corrupt.Is(err) {
			t.Fatalf("%q: %v", b, err)
		}
	})
}
