package metadata

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/binderylog/bindery/internal/ledger"
)

// DefaultRoot is the ledgers root that a URI without a path means.
const DefaultRoot = "/ledgers"

// Names under the ledgers root. They are Apache BookKeeper's.
const (
	nameLayout     = "LAYOUT"
	nameInstance   = "INSTANCEID"
	nameAvailable  = "available"
	nameReadOnly   = "readonly"
	nameCookies    = "cookies"
	nameIDGen      = "idgen"
	nameIDGenLong  = "idgen-long"
	nameUnderRep   = "underreplication"
	nameSequenceID = "ID-"
	nameHOB        = "HOB-"
)

// shortIDEnd is the first id that has a long path and that the short id generator does not give out.
const shortIDEnd = ledger.ID(1<<31 - 1)

// Scheme says how a ledger's id becomes its path.
type Scheme uint8

// The schemes of the layouts that this version reads and writes.
const (
	SchemeHybrid Scheme = iota // ids below 2^31-1 in three levels, the rest in five (HierarchicalLedgerManagerFactory)
	SchemeLong                 // all ids in five levels (LongHierarchicalLedgerManagerFactory)
)

// LedgerPath returns the path of a ledger's record relative to the root, such as "00/0000/L0042".
func (s Scheme) LedgerPath(id ledger.ID) string {
	if s == SchemeHybrid && id < shortIDEnd {
		d := fmt.Sprintf("%010d", int64(id))
		return d[:2] + "/" + d[2:6] + "/L" + d[6:]
	}
	d := fmt.Sprintf("%019d", int64(id))
	return d[:3] + "/" + d[3:7] + "/" + d[7:11] + "/" + d[11:15] + "/L" + d[15:]
}

// ParseLedgerPath returns the id of the ledger whose record is at rel. Only the very path that LedgerPath makes is
// accepted, so that no ledger has two records. parent is true for a path that can only be an empty parent of records,
// which engines copied from ZooKeeper may hold; then id means nothing.
func (s Scheme) ParseLedgerPath(rel string) (id ledger.ID, parent bool, err error) {
	parts := strings.Split(rel, "/")
	if parentShaped(parts) {
		return 0, true, nil
	}
	last := len(parts) - 1
	digits, ok := strings.CutPrefix(parts[last], "L")
	if !ok || (last != 2 && last != 4) {
		return 0, false, fmt.Errorf("%q is not the path of a ledger", rel)
	}
	digits = strings.Join(parts[:last], "") + digits
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 0 || s.LedgerPath(ledger.ID(n)) != rel {
		return 0, false, fmt.Errorf("%q is not the path of a ledger", rel)
	}
	return ledger.ID(n), false, nil
}

// parentShaped reports whether parts are the leading directories of a ledger path.
func parentShaped(parts []string) bool {
	for i, p := range parts {
		want := 4
		if i == 0 {
			want = len(parts[0])
		}
		if len(p) != want || !allDigits(p) {
			return false
		}
	}
	switch len(parts[0]) {
	case 2:
		return len(parts) <= 2
	case 3:
		return len(parts) <= 4
	}
	return false
}

func allDigits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

// CleanRoot checks a ledgers root: absolute, no empty or dotted element, no trailing slash.
func CleanRoot(root string) (string, error) {
	if root == "" {
		return DefaultRoot, nil
	}
	root = strings.TrimSuffix(root, "/")
	if !strings.HasPrefix(root, "/") || len(root) > KeyMax/2 {
		return "", fmt.Errorf("ledgers root %q: must be a path such as %s", root, DefaultRoot)
	}
	for _, p := range strings.Split(root[1:], "/") {
		if p == "" || p == "." || p == ".." {
			return "", fmt.Errorf("ledgers root %q: must be a path such as %s", root, DefaultRoot)
		}
	}
	return root, nil
}

// CheckBookieID returns an error for an id that no bookie may have. Accepted is what Java accepts: letters, digits, '-',
// '.', and everything between ':' and '_' in ASCII.
func CheckBookieID(id ledger.BookieID) error {
	if id == "" || len(id) > 255 {
		return fmt.Errorf("bookie id %q: must have 1 to 255 characters", string(id))
	}
	if strings.EqualFold(string(id), nameReadOnly) {
		return fmt.Errorf("bookie id %q: the word is reserved", string(id))
	}
	for i := range len(id) {
		c := id[i]
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' || c == '.' || c >= ':' && c <= '_' {
			continue
		}
		return fmt.Errorf("bookie id %q: character %q is not allowed (letters, digits, ':', '-', '_' and '.' are)", string(id), c)
	}
	return nil
}
