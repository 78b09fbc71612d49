package dir

import (
	"encoding/hex"
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFooterGolden(t *testing.T) {
	f := footer{size: 4, crc: 0x11223344, modified: 1767323045678, meta: map[string]string{"bko-shard": "4", "a": "b"}}
	const golden = "610962" + "0a" + "626b6f2d7368617264" + "09" + "34" + "0a" + // metadata
		"0000000000000004" + "0000019b7ca98f2e" + "00000010" + "11223344" + "????????" + "424b4f46"
	got := hex.EncodeToString(f.encode())
	i := strings.Index(golden, "?")
	require.Equal(t, golden[:i], got[:i])
	require.Equal(t, golden[i+8:], got[i+8:])
	back, err := decodeFooter(f.encode(), 4+16+footerSize)
	require.NoError(t, err)
	require.Equal(t, f, back)
}

func FuzzFooter(f *testing.F) {
	ok := footer{size: 4, crc: 1, modified: 2, meta: map[string]string{"a": "b"}}
	f.Add(ok.encode(), int64(4+4+footerSize))
	empty := footer{}
	f.Add(empty.encode(), int64(footerSize))
	f.Fuzz(func(t *testing.T, tail []byte, size int64) {
		got, err := decodeFooter(tail, size)
		if err != nil {
			require.ErrorIs(t, err, errForeign)
			return
		}
		require.Equal(t, size, got.size+int64(len(got.encode())), "metadata of another length")
		again, err := decodeFooter(got.encode(), size)
		require.NoError(t, err)
		require.True(t, maps.Equal(got.meta, again.meta))
	})
}
