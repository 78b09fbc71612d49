package errorfs

import (
	"fmt"
	"strings"
)

// Kind is a set of kinds of operation.
type Kind uint32

// The kinds. Open and Create are the same call: Create is one with Mode.Create set, whether the file exists or not.
const (
	Open Kind = 1 << iota
	Create
	Read
	Write
	Sync
	Truncate
	Preallocate
	Close
	Size
	Remove
	Rename
	Mkdir
	List
	Stat
	SyncDir
	Lock
	Usage
)

// Sets of kinds that tests ask for.
const (
	// Changes are the operations that change what is on disk.
	Changes = Create | Write | Sync | Truncate | Preallocate | Remove | Rename | Mkdir | SyncDir
	// Lookups are the operations that only ask.
	Lookups = Open | Read | Size | List | Stat | Usage
	// Any is every kind but Close: a failed close has no meaning that a program could act on.
	Any = Changes | Lookups | Lock
)

var kindNames = []string{
	"open", "create", "read", "write", "sync", "truncate", "preallocate", "close", "size", "remove", "rename", "mkdir",
	"list", "stat", "syncdir", "lock", "usage",
}

// String names the kinds of the set.
func (k Kind) String() string {
	switch k {
	case Changes:
		return "change"
	case Lookups:
		return "lookup"
	case Any:
		return "operation"
	}
	var names []string
	for i, name := range kindNames {
		if k&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, "|")
}

// Op is one operation about to be done.
type Op struct {
	Kind    Kind
	Path    string // the name it was called with; of a file, the one it was opened with
	NewPath string // Rename: the new name
	Off     int64  // Read, Write: offset; Truncate, Preallocate: size
	Len     int    // Read, Write: bytes
}

// String names the operation.
func (o Op) String() string {
	switch o.Kind {
	case Read, Write:
		return fmt.Sprintf("%s(%s, %d bytes at %d)", o.Kind, o.Path, o.Len, o.Off)
	case Truncate, Preallocate:
		return fmt.Sprintf("%s(%s, %d)", o.Kind, o.Path, o.Off)
	case Rename:
		return fmt.Sprintf("rename(%s, %s)", o.Path, o.NewPath)
	}
	return fmt.Sprintf("%s(%s)", o.Kind, o.Path)
}
