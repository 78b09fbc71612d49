package bookie

import (
	"fmt"
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
		return exitErrorf(ExitIdentity, "%s does not match: %s", name, diff)
	}
	return nil
}
