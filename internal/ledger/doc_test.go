package ledger

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestEveryRuleHasAPlace: docs/protocol.md names, for every numbered rule, a file and something in it. Both must exist; and no
// rule may be missing.
func TestEveryRuleHasAPlace(t *testing.T) {
	root := filepath.Join("..", "..")
	text, err := os.ReadFile(filepath.Join(root, "docs", "protocol.md"))
	require.NoError(t, err)
	place := regexp.MustCompile("`([a-z_/0-9]+\\.go)` ([A-Za-z]+)")
	files := map[string]string{}
	found := place.FindAllStringSubmatch(string(text), -1)
	require.Greater(t, len(found), 100)
	for _, m := range found {
		if _, ok := files[m[1]]; !ok {
			src, err := os.ReadFile(filepath.Join(root, m[1]))
			require.NoError(t, err)
			files[m[1]] = string(src)
		}
		if !regexp.MustCompile(`\b` + m[2] + `\b`).MatchString(files[m[1]]) {
			t.Errorf("no %s in %s", m[2], m[1])
		}
	}
	for _, rule := range strings.Fields(`1.1 1.2 1.3 1.4 1.5 1.6 T1 T2 T3 T4 T5 T6 T7 T8 T9 T10 2.1 2.2 2.3 2.4 2.5 2.6 3.1 3.2 3.3 3.4 3.5 3.6 3.7 3.8 3.9 3.10
		4.1 4.2 4.3 4.4 4.5 5.1 5.2 5.3 5.4 5.5 5.6 5.7 5.8 5.9 5.10 5.11 6.1 6.2 6.3 6.4 6.5 6.6 6.7 6.8 6.9 7.1 7.2 7.3 7.4 7.5 7.6 8
		9.1 9.2 9.3 9.4 9.5 9.6 9.7 9.8 9.9 9.10 10.1 10.2 10.3 10.4 10.5 10.6 10.7 11.1 11.2 11.3 11.4 11.5 R1 R2 R3 R4 R5 R6 R7 R8
		12.1 12.2 12.3 12.4 12.5 12.6 12.7 12.8 12.9 13.1 13.2 13.3 13.4 13.5 14.1 14.2 14.3 14.4 14.5 14.6 14.7 15.3 15.4 15.5 15.6`) {
		require.Contains(t, string(text), "\n| "+rule+" |", "rule %s has a row", rule)
	}
	// Every scenario of the protocol and of the decisions has a transcript.
	for _, s := range []string{"S01", "S02", "S03", "S04", "S05", "S06", "S07", "S08", "S09", "S10", "S11", "S12", "S13", "S14", "S15", "S16", "S17", "S18", "S19", "S20",
		"S21", "S22", "S23", "S24", "S25", "S26", "S27", "S28", "S29", "S30", "S31", "S32", "S33", "S34", "S35", "S36", "S37", "S38", "S39", "S40", "S41"} {
		scripts, err := filepath.Glob(filepath.Join("testdata", s+"*.txt"))
		require.NoError(t, err)
		require.NotEmpty(t, scripts, s)
	}
}
