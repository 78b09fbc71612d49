package bookie

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"

	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/vfs"
)

// inventoryName is a file in current/ of each directory that lists all directories of the bookie and the disks under them,
// as the last start found them. When a disk is missing, the other directories know which one it was. It is for people and
// for messages; a bookie without it starts as well.
const inventoryName = "bookie.json"

const (
	inventoryVersion = 1
	inventoryMax     = 1 << 20
)

type inventory struct {
	Version     int              `json:"version"`
	Bookie      ledger.BookieID  `json:"bookie"`
	Instance    string           `json:"instance_id"`
	Directories []inventoryEntry `json:"directories"`
}

type inventoryEntry struct {
	Path      string `json:"path"`
	Kinds     string `json:"kinds"`
	Directory string `json:"directory"`
	DiskID
}

func (i *Identity) inventory() inventory {
	inv := inventory{Version: inventoryVersion, Bookie: i.o.ID, Instance: i.instance}
	for _, d := range i.dirs {
		e := inventoryEntry{Path: d.path, Kinds: d.kindText(), Directory: d.stamp.Directory}
		if i.o.DiskOf != nil {
			e.DiskID = i.o.DiskOf(d.path)
		}
		inv.Directories = append(inv.Directories, e)
	}
	return inv
}

// writeInventory writes the file where it says something else. A failure is no reason not to start.
func (i *Identity) writeInventory() {
	text, err := json.MarshalIndent(i.inventory(), "", "  ")
	if err != nil {
		i.o.Logger.Warn("the list of disks can not be written", "error", err)
		return
	}
	text = append(text, '\n')
	for _, d := range i.dirs {
		if old, err := readInventoryText(d); err == nil && bytes.Equal(old, text) {
			continue
		}
		if err := vfs.WriteFileAtomic(d.fs, d.file(inventoryName), text); err != nil {
			i.o.Logger.Warn("the list of disks could not be written", "dir", d.path, "error", err)
		}
	}
}

func readInventoryText(d *directory) ([]byte, error) {
	info, err := d.fs.Stat(d.file(inventoryName))
	if err != nil {
		return nil, err
	}
	if info.Size > inventoryMax {
		return nil, fmt.Errorf("%s has %d bytes", d.file(inventoryName), info.Size)
	}
	return vfs.ReadFile(d.fs, d.file(inventoryName))
}

// lastDisk returns what the directories that are here remember of the disk under path.
func lastDisk(dirs []*directory, path string) (DiskID, bool) {
	for _, d := range dirs {
		if d.stamp == nil {
			continue
		}
		text, err := readInventoryText(d)
		if err != nil {
			continue
		}
		var inv inventory
		if json.Unmarshal(text, &inv) != nil || inv.Bookie != d.stamp.Bookie {
			continue
		}
		for _, e := range inv.Directories {
			if filepath.Clean(e.Path) == filepath.Clean(path) && e.DiskID.String() != "" {
				return e.DiskID, true
			}
		}
	}
	return DiskID{}, false
}

// lastDiskHint is lastDisk as the end of a message.
func lastDiskHint(dirs []*directory, path string) string {
	if id, ok := lastDisk(dirs, path); ok {
		return " (at the last start it was on the disk " + id.String() + ")"
	}
	return ""
}
