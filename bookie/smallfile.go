package bookie

import (
	"errors"
	"io"
	"slices"

	"github.com/binderylog/bindery/entrylog"
	"github.com/binderylog/bindery/internal/vfs"
)

// inPlaceMax is the largest file that is overwritten in place: what every disk writes whole or not at all.
const inPlaceMax = 512

// replaceFile replaces a small file as vfs.WriteFileAtomic does. On a full disk there is no room for the new file beside
// the old one; if both have one length and lie in one sector, the new content is then written over the old one, which
// takes no space. So the files that every start has to change are written with fixed lengths.
func replaceFile(fsys vfs.FS, name string, data []byte) error {
	err := vfs.WriteFileAtomic(fsys, name, data)
	if vfs.IsNoSpace(err) && overwrite(fsys, name, data) == nil {
		return nil
	}
	return err
}

// errNotInPlace is returned for a file that can not be overwritten safely.
var errNotInPlace = errors.New("not a file of the same length in one sector")

func overwrite(fsys vfs.FS, name string, data []byte) (err error) {
	if len(data) > inPlaceMax {
		return errNotInPlace
	}
	f, err := fsys.Open(name, vfs.Mode{Write: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	old := make([]byte, inPlaceMax+1)
	n, err := f.ReadAt(old, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if n != len(data) {
		return errNotInPlace
	}
	if _, err := f.WriteAt(data, 0); err != nil {
		return err
	}
	return f.Sync()
}

// replace is replaceFile in current/. A ledger directory on a full disk gives up its reserve for it, which the watch over
// the disks sets aside again when there is room.
func (d *directory) replace(name string, data []byte) error {
	err := replaceFile(d.fs, d.file(name), data)
	if !vfs.IsNoSpace(err) || !slices.Contains(d.kinds, kindLedger) {
		return err
	}
	if n, rerr := entrylog.ReleaseReserve(d.fs, d.file(".")); rerr != nil || n == 0 {
		return err
	}
	return replaceFile(d.fs, d.file(name), data)
}
