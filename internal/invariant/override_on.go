//go:build crashpoints

package invariant

import (
	"os"
	"strconv"
	"strings"
)

// overrides holds the figures of BINDERY_OVERRIDES ("entrylog.size=4194304,journal.segment=2097152").
var overrides = parseOverrides(os.Getenv("BINDERY_OVERRIDES"))

func parseOverrides(s string) map[string]int64 {
	m := map[string]int64{}
	for _, item := range strings.Split(s, ",") {
		name, text, ok := strings.Cut(item, "=")
		if !ok {
			continue
		}
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			m[name] = n
		}
	}
	return m
}

// Override returns what the environment says for name, or value.
func Override(name string, value int64) int64 {
	if n, ok := overrides[name]; ok {
		return n
	}
	return value
}
