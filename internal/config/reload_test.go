package config

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestReloadAdoptsWhatCanChange(t *testing.T) {
	file := write(t, minimal)
	l, err := Load(Options{File: file, Set: []string{"gc.rate=2MiB"}})
	require.NoError(t, err)
	change := func(text string) {
		require.NoError(t, os.WriteFile(file, []byte(minimal+text), 0o600))
	}
	change(`[gc]
interval = "1m"
minor = { below = 0.1, every = "2m" }
rate = "5MiB"
[log]
level = "debug"
[storage]
flush_interval = "10s"
[recovery]
rate = "1MiB"
[limits]
in_flight = "64MiB"
`)
	next, err := l.Reload()
	require.NoError(t, err)
	mixed, changes, err := l.Adopt(next, func(key string, c *Config) string {
		if key == "limits.in_flight" && c.Limits.InFlight > 32<<20 {
			return "too much"
		}
		return ""
	})
	require.NoError(t, err)
	require.Equal(t, []Change{
		{"storage.flush_interval", `"30s"`, `"10s"`, "needs a restart"},
		{"gc.interval", `"15m"`, `"1m"`, ""},
		{"gc.minor.below", "0.2", "0.1", ""},
		{"gc.minor.every", `"1h"`, `"2m"`, ""},
		{"limits.in_flight", `"auto"`, `"64MiB"`, "too much"},
		{"log.level", `"info"`, `"debug"`, ""},
		{"recovery.rate", `"auto"`, `"1MiB"`, ""},
	}, changes)
	require.Equal(t, Duration(time.Minute), mixed.GC.Interval)
	require.Equal(t, "debug", mixed.Log.Level)
	require.Equal(t, file+":4", mixed.Origin("gc.interval").String())
	require.Equal(t, Duration(30*time.Second), mixed.Storage.FlushInterval)
	require.Equal(t, AutoSize, mixed.Limits.InFlight)
	require.Equal(t, Size(2<<20), mixed.GC.Rate, "--set is as it was")
	require.Equal(t, Duration(15*time.Minute), l.GC.Interval, "the old one is untouched")

	// What was refused is reported again, what was adopted is not.
	again, changes, err := mixed.Adopt(next, nil)
	require.NoError(t, err)
	require.Len(t, changes, 2)
	require.Equal(t, Size(64<<20), again.Limits.InFlight)

	change("[gc]\nintervall = \"1m\"\n")
	_, err = mixed.Reload()
	var p ProblemsError
	require.ErrorAs(t, err, &p)
}

// TestReloadRefusesAMixtureThatCanNotWork: two settings go together, and only one of them can change.
func TestReloadRefusesAMixtureThatCanNotWork(t *testing.T) {
	l, err := Load(Options{File: write(t, minimal)})
	require.NoError(t, err)
	next, err := Load(Options{File: write(t, minimal+"[gc]\nmajor = { below = 0.1 }\nminor = { below = 0.05 }\n")})
	require.NoError(t, err)
	_, _, err = l.Adopt(next, func(key string, _ *Config) string {
		if key == "gc.minor.below" {
			return "not now"
		}
		return ""
	})
	require.ErrorContains(t, err, "gc.minor.below: 0.2 is not below gc.major.below = 0.1")
}

func TestEveryTypeIsCopied(t *testing.T) {
	var from, to Config
	for _, s := range settings {
		_ = setText(s.field(&from), s.Default, s.Auto)
		copyValue(s.field(&to), s.field(&from))
		require.Equal(t, s.Format(&from), s.Format(&to), s.Key)
	}
}
