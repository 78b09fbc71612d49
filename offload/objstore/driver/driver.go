// Package driver opens the targets of a configuration: an S3 bucket or a folder, the part of it below a prefix, and objstore.Target around that.
//
// It holds no state and starts no goroutine.
package driver

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/binderylog/bindery/internal/vfs"
	"github.com/binderylog/bindery/offload/objstore"
	"github.com/binderylog/bindery/offload/objstore/dir"
	"github.com/binderylog/bindery/offload/objstore/s3"
)

// Options of one target: a folder if Dir is set, otherwise the bucket of S3.
type Options struct {
	Dir       string
	CreateDir bool // make the folder if it is missing or empty
	LateDir   bool // open a folder also while it can not be used
	S3        s3.Options
	Prefix    string                 // begins every key; empty: none
	Target    objstore.TargetOptions // with the target's id
	FS        vfs.FS                 // of folders; default: the operating system's
}

// Open opens a target. A bucket is not asked yet: Target.Check does so.
func Open(o Options) (*objstore.Target, error) {
	t, err := open(o)
	if err != nil {
		return nil, fmt.Errorf("offload target %s: %w", o.Target.ID, err)
	}
	return t, nil
}

func open(o Options) (*objstore.Target, error) {
	if o.Target.ID == "" {
		return nil, errors.New("id is empty")
	}
	if o.Dir != "" && o.S3.Endpoint != "" {
		return nil, errors.New("both dir and endpoint are set: a target is a folder or a bucket")
	}
	store, err := openStore(o)
	if err != nil {
		return nil, err
	}
	below, err := objstore.WithPrefix(store, o.Prefix)
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return objstore.NewTarget(below, o.Target), nil
}

func openStore(o Options) (objstore.Store, error) {
	if o.Dir == "" {
		return s3.Open(o.S3)
	}
	if !filepath.IsAbs(o.Dir) {
		return nil, fmt.Errorf("dir %q is not an absolute path", o.Dir)
	}
	fsys := o.FS
	if fsys == nil {
		fsys = vfs.OS()
	}
	return dir.Open(fsys, o.Dir, dir.Options{Create: o.CreateDir, Late: o.LateDir})
}

// samePlace reports whether two targets, open both, have the same objects: one folder under two names, or one bucket. A server with two names
// is found by objstore.SamePlaces.
func (o *Options) samePlace(other *Options) bool {
	if strings.Trim(o.Prefix, "/") != strings.Trim(other.Prefix, "/") || (o.Dir == "") != (other.Dir == "") {
		return false
	}
	if o.Dir == "" {
		host := func(x *Options) string { return strings.ToLower(strings.TrimRight(x.S3.Endpoint, "/")) }
		return o.S3.Bucket == other.S3.Bucket && host(o) == host(other)
	}
	a, err1 := os.Stat(o.Dir)
	b, err2 := os.Stat(other.Dir)
	return err1 == nil && err2 == nil && os.SameFile(a, b)
}

// FoldersOf returns the options of n targets, t1 to tn, one folder each below root; root/t1 and so on are made if they are missing or empty. Six of
// them with geometry 4+2 lose nothing when any two are wiped; on one disk they protect from nothing else.
func FoldersOf(root string, n int) []Options {
	out := make([]Options, n)
	for i := range out {
		id := fmt.Sprintf("t%d", i+1)
		out[i] = Options{Dir: filepath.Join(root, id), CreateDir: true, Target: objstore.TargetOptions{ID: id}}
	}
	return out
}
