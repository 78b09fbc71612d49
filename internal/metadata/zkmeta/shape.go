package zkmeta

import (
	"fmt"
	"strings"

	"github.com/binderylog/bindery/internal/metadata"
)

// checkPath returns an error for a key that cannot be a node.
func checkPath(key string) error {
	bad := func(why string) error { return fmt.Errorf("%w: key %q %s", metadata.ErrBadTxn, key, why) }
	if len(key) < 2 || key[0] != '/' {
		return bad("is not a path below /")
	}
	for part := range strings.SplitSeq(key[1:], "/") {
		switch part {
		case "", ".", "..":
			return bad("has an empty or dotted part")
		}
	}
	for _, r := range key {
		if r < 0x20 || r >= 0x7f && r <= 0x9f || r >= 0xd800 && r <= 0xf8ff || r >= 0xfff0 && r <= 0xffff {
			return bad("has a character that ZooKeeper does not accept")
		}
	}
	return nil
}

// parentOf returns the path of a node's parent, "" for a child of the root.
func parentOf(path string) string { return path[:strings.LastIndexByte(path, '/')] }

// cutLast splits a path at its last slash.
func cutLast(path string) (dir, name string) {
	i := strings.LastIndexByte(path, '/')
	return path[:i], path[i+1:]
}

// isLeaf reports whether a node is a ledger's record or an under-replication mark by its name: such nodes have no children,
// and a million of them must not be asked for any.
func isLeaf(path string) bool { return emptyLevels(path) > 0 || isFlatLedger(path) }

func isFlatLedger(path string) bool {
	_, name := cutLast(path)
	return len(name) >= 11 && name[0] == 'L' && digits(name[1:])
}

// emptyLevels returns how many levels above a leaf exist for its sake only and go when they are empty: 2 for a short ledger
// path, 4 for a long one and for an under-replication mark, 0 for anything else.
func emptyLevels(path string) int {
	dir, name := cutLast(path)
	if strings.HasPrefix(name, "urL") && digits(name[3:]) {
		for range 4 {
			var part string
			if dir == "" {
				return 0
			}
			if dir, part = cutLast(dir); len(part) != 4 || strings.Trim(part, "0123456789abcdef") != "" {
				return 0
			}
		}
		return 4
	}
	if len(name) != 5 || name[0] != 'L' || !digits(name[1:]) {
		return 0
	}
	for level := 1; dir != "" && level <= 4; level++ {
		var part string
		dir, part = cutLast(dir)
		switch {
		case !digits(part):
			return 0
		case len(part) == 2 && level == 2, len(part) == 3 && level == 4:
			return level
		case len(part) != 4:
			return 0
		}
	}
	return 0
}

func digits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }
