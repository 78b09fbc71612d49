package bookie

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/metadata"
)

// A cookie that does not match says what has happened and what to do.
func TestCookieAdvice(t *testing.T) {
	stored := metadata.Cookie{BookieHost: "b1", InstanceID: "i", JournalDirs: []string{"/srv/one/b/journal"}, LedgerDirs: []string{"/srv/one/b/ledgers", "/srv/one/b/more"}}
	text, err := metadata.EncodeCookie(stored)
	require.NoError(t, err)
	for _, c := range []struct {
		name   string
		change func(*metadata.Cookie)
		want   string
	}{
		{"moved", func(c *metadata.Cookie) {
			c.JournalDirs, c.LedgerDirs = []string{"/home/two/b/journal"}, []string{"/home/two/b/ledgers", "/home/two/b/more"}
		}, "/srv/one was moved to /home/two, or that was copied: move it back"},
		{"renamed", func(c *metadata.Cookie) {
			c.JournalDirs, c.LedgerDirs = []string{"/srv/two/b/journal"}, []string{"/srv/two/b/ledgers", "/srv/two/b/more"}
		}, "/srv/one was moved to /srv/two"},
		{"swapped", func(c *metadata.Cookie) { c.LedgerDirs = []string{"/srv/one/b/more", "/srv/one/b/ledgers"} }, "in the same order"},
		{"one elsewhere", func(c *metadata.Cookie) { c.LedgerDirs = []string{"/srv/one/b/ledgers", "/mnt/more"} }, "Put the lists of directories back"},
		{"fewer", func(c *metadata.Cookie) { c.LedgerDirs = c.LedgerDirs[:1] }, "Put the lists of directories back"},
		{"new host name", func(c *metadata.Cookie) { c.BookieHost = "10.0.0.9:3181" }, `set bookie.id = "b1"`},
		{"other cluster", func(c *metadata.Cookie) { c.InstanceID = "j" }, "Check metadata.uri"},
	} {
		t.Run(c.name, func(t *testing.T) {
			want := stored
			want.LedgerDirs = append([]string(nil), stored.LedgerDirs...)
			c.change(&want)
			require.ErrorContains(t, checkCookie("the cookie", text, want, false), c.want)
		})
	}
	require.NoError(t, checkCookie("the cookie", text, stored, false))
}
