package report

import (
	"fmt"
	"strings"

	"github.com/binderylog/bindery/tools/iobench/result"
)

// Snippet is the recommendation as lines for the configuration file, each with its evidence.
func Snippet(rec *result.Recommendation) string {
	if rec == nil || len(rec.Settings) == 0 {
		return ""
	}
	var b strings.Builder
	if rec.Header != "" {
		b.WriteString("# " + rec.Header + "\n")
	}
	var tables []string
	widest := 0
	byTable := map[string][]result.Setting{}
	for _, s := range rec.Settings {
		if byTable[s.Table] == nil {
			tables = append(tables, s.Table)
		}
		byTable[s.Table] = append(byTable[s.Table], s)
		widest = max(widest, len(s.Key)+3+len(s.Value))
	}
	for _, t := range tables {
		fmt.Fprintf(&b, "[%s]\n", t)
		for _, s := range byTable[t] {
			fmt.Fprintf(&b, "%-*s  # %s\n", widest, s.Key+" = "+s.Value, s.Evidence)
		}
	}
	return b.String()
}
