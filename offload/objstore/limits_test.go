package objstore

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestKeys(t *testing.T) {
	for _, key := range []string{"a", "bk/o1/3f/3f9a-000000000000002a/s004-g0", "p x/q:r+s/ü", strings.Repeat("a", SegmentMax)} {
		require.NoError(t, CheckKey(key), "%q", key)
	}
	for _, key := range []string{"", "/a", "a/", "a//b", "a/../b", ".", "a/.b", "a\\b", "a\nb", "a\x00", "\xff", strings.Repeat("a", SegmentMax+1), strings.Repeat("a/", KeyMax)} {
		require.Error(t, CheckKey(key), "%q", key)
	}
}

func TestRequestsOutsideTheLimitsAreMisuse(t *testing.T) {
	ok := NewBody([]byte("x"))
	id := strings.Repeat("i", KeyMax+1)
	for name, err := range map[string]error{
		"key":         CheckPut("/a", ok, nil),
		"meta name":   CheckPut("a", ok, map[string]string{"A": "b"}),
		"meta value":  CheckPut("a", ok, map[string]string{"a": "b\n"}),
		"meta space":  CheckPut("a", ok, map[string]string{"a": " b"}),
		"meta size":   CheckPut("a", ok, map[string]string{"a": strings.Repeat("b", MetaMax)}),
		"offset":      CheckGet("a", -1, make([]byte, 1)),
		"empty range": CheckGet("a", 0, nil),
		"part 0":      CheckPart("a", "i", 0, ok),
		"part 10001":  CheckPart("a", "i", PartsMax+1, ok),
		"empty part":  CheckPart("a", "i", 1, Body{}),
		"no id":       CheckPart("a", "", 1, ok),
		"long id":     CheckAbort("a", id),
		"no parts":    CheckComplete("a", "i", nil),
		"order":       CheckComplete("a", "i", []Part{{Number: 2, Size: PartMin}, {Number: 2, Size: 1}}),
		"small part":  CheckComplete("a", "i", []Part{{Number: 1, Size: PartMin - 1}, {Number: 2, Size: 1}}),
		"upload key":  CheckUpload("", UploadOptions{}),
		"name":        CheckName(OpHead, "a/"),
	} {
		require.Equal(t, KindMisuse, KindOf(err), "%s: %v", name, err)
	}
	require.NoError(t, CheckComplete("a", "i", []Part{{Number: 2, Size: PartMin}, {Number: 7, Size: 1}}))
	require.Equal(t, KindChecksum, KindOf(CheckPut("a", Body{Data: []byte("x")}, nil)))
	limit, err := CheckList("", 0)
	require.NoError(t, err)
	require.Equal(t, ListMax, limit)
	_, err = CheckList(strings.Repeat("a", KeyMax+1), 1)
	require.Error(t, err)
}
