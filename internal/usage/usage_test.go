package usage

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestArguments(t *testing.T) {
	for _, tc := range []struct {
		line string
		args []string
		want string // "": nothing is wrong
	}{
		{"quick DIR...", nil, "DIR is missing"},
		{"quick DIR...", []string{"a", "b", "c"}, ""},
		{"info DIR LOG", nil, "DIR and LOG are missing"},
		{"info DIR LOG", []string{"d"}, "LOG is missing"},
		{"info DIR LOG", []string{"d", "1"}, ""},
		{"info DIR LOG", []string{"d", "1", "2"}, `"2" is one argument too many`},
		{"put A B C", nil, "A, B and C are missing"},
		{"read ID [FIRST [LAST]]", nil, "ID is missing"},
		{"read ID [FIRST [LAST]]", []string{"1", "2", "3"}, ""},
		{"read ID [FIRST [LAST]]", []string{"1", "2", "3", "4"}, `"4" is one argument too many`},
		{"verify DIR [LOG...]", []string{"d", "1", "2", "3"}, ""},
		{"readonly on|off|status", nil, "on|off|status is missing"},
		{"soak DIR --hours N", []string{"d", "x"}, `"x" is one argument too many`},
		{"full --journal DIR [--ledger DIR]...", []string{"/data"}, `"/data" is not expected: it takes no arguments`},
		{"collect --hosts FILE [-- FLAGS OF QUICK]", nil, ""},
		{"status", []string{"x"}, `"x" is not expected: it takes no arguments`},
		{"write [FILE|-]", []string{"a", "b"}, `"b" is one argument too many`},
		{"", nil, ""},
	} {
		err := Arguments(tc.line, tc.args)
		if tc.want == "" {
			require.NoError(t, err, "%s %v", tc.line, tc.args)
			continue
		}
		require.EqualError(t, err, tc.want, "%s %v", tc.line, tc.args)
	}
}

func TestExplain(t *testing.T) {
	cobra := errors.New("accepts 1 arg(s), received 0")
	require.True(t, FromCobra(cobra))
	require.False(t, FromCobra(errors.New("no such file")))
	require.EqualError(t, Explain(cobra, "show ID", "bindery ledger show ID [flags]", nil), "ID is missing (usage: bindery ledger show ID [flags])")
	require.ErrorIs(t, Explain(cobra, "show ID", "bindery ledger show ID [flags]", []string{"1"}), cobra)
	require.EqualError(t, Missing("--config FILE", "which file to change", "iobench apply RUN.json --config FILE [flags]"),
		"--config FILE is missing: which file to change (usage: iobench apply RUN.json --config FILE [flags])")
}
