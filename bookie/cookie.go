package bookie

import (
	"fmt"
	"path/filepath"
	"slices"

	"github.com/binderylog/bindery/internal/metadata"
)

// matchCookie compares a stored cookie with the one that the configuration makes. With expansion, the configuration may
// name further ledger and index directories behind the stored ones. Nothing else may differ, the order of the lists
// included: journals are found by their place in the list. The result says what differs, "" if nothing does.
func matchCookie(stored, want metadata.Cookie, expansion bool) string {
	switch {
	case stored.BookieHost != want.BookieHost:
		return fmt.Sprintf("bookie id is %q in the cookie, %q in the configuration", stored.BookieHost, want.BookieHost)
	case stored.InstanceID != want.InstanceID:
		return fmt.Sprintf("the cookie is of the cluster with instance id %q, this one has %q", stored.InstanceID, want.InstanceID)
	case !slices.Equal(stored.JournalDirs, want.JournalDirs):
		return fmt.Sprintf("journal directories are %q in the cookie, %q in the configuration", stored.JournalDirs, want.JournalDirs)
	case !sameDirs(stored.LedgerDirs, want.LedgerDirs, expansion):
		return fmt.Sprintf("ledger directories are %q in the cookie, %q in the configuration", stored.LedgerDirs, want.LedgerDirs)
	case !sameDirs(indexDirs(stored), indexDirs(want), expansion):
		return fmt.Sprintf("index directories are %q in the cookie, %q in the configuration", indexDirs(stored), indexDirs(want))
	}
	return ""
}

func sameDirs(stored, want []string, expansion bool) bool {
	if expansion && len(want) > len(stored) {
		want = want[:len(stored)]
	}
	return slices.Equal(stored, want)
}

// indexDirs are the ledger directories where none are named.
func indexDirs(c metadata.Cookie) []string {
	if len(c.IndexDirs) == 0 {
		return c.LedgerDirs
	}
	return c.IndexDirs
}

// checkCookie compares the cookie in a directory or in the store with the one that the configuration makes.
func checkCookie(name string, text []byte, want metadata.Cookie, expansion bool) error {
	c, err := metadata.DecodeCookie(name, text)
	if err != nil {
		return exitErrorf(ExitIdentity, "%w", err)
	}
	if diff := matchCookie(c, want, expansion); diff != "" {
		return exitErrorf(ExitIdentity, "%s does not match: %s. %s", name, diff, cookieAdvice(c, want))
	}
	return nil
}

// cookieAdvice says what has probably happened to a bookie whose cookie does not match, and what to do about it.
func cookieAdvice(stored, want metadata.Cookie) string {
	switch {
	case stored.BookieHost != want.BookieHost:
		return fmt.Sprintf("If the name or the address of this host has changed, set bookie.id = %q: the id stays for life; otherwise these are "+
			"another bookie's directories", stored.BookieHost)
	case stored.InstanceID != want.InstanceID:
		return "Check metadata.uri: it leads to another cluster, or to one that was made anew"
	}
	if from, to, ok := moved(allDirs(stored), allDirs(want)); ok {
		return fmt.Sprintf("%s was moved to %s, or that was copied: move it back, or leave a symbolic link at the old place and start with the "+
			"old path (standalone: --data-dir)", from, to)
	}
	return "Put the lists of directories back as they were, in the same order; new ledger directories go to the end, with storage.allow_expansion"
}

func allDirs(c metadata.Cookie) []string {
	return slices.Concat(c.JournalDirs, c.LedgerDirs, indexDirs(c))
}

// moved reports whether every path of after is the path of before with one and the same parent directory replaced.
func moved(before, after []string) (from, to string, ok bool) {
	if len(before) == 0 || len(before) != len(after) {
		return "", "", false
	}
	for i := range before {
		f, t := differ(before[i], after[i])
		if i == 0 {
			from, to = f, t
		}
		if f == t || f != from || t != to {
			return "", "", false
		}
	}
	return from, to, true
}

// differ cuts off what two paths have in common at the end.
func differ(a, b string) (x, y string) {
	a, b = filepath.Clean(a), filepath.Clean(b)
	for a != b && filepath.Base(a) == filepath.Base(b) && filepath.Dir(a) != a && filepath.Dir(b) != b {
		a, b = filepath.Dir(a), filepath.Dir(b)
	}
	return a, b
}
