package driver_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/binderylog/bindery/offload/objstore"
	"github.com/binderylog/bindery/offload/objstore/driver"
	"github.com/binderylog/bindery/offload/objstore/objstoretest"
	"github.com/binderylog/bindery/offload/objstore/s3"
	"github.com/binderylog/bindery/offload/objstore/s3test"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestStatement39Folder(t *testing.T) {
	objstoretest.Run(t, func(t *testing.T) objstore.Store {
		s, err := driver.Open(driver.Options{Dir: filepath.Join(t.TempDir(), "t1"), CreateDir: true, Prefix: "bk/prod", Target: objstore.TargetOptions{ID: "t1"}})
		require.NoError(t, err)
		return s
	})
}

func TestSixFolders(t *testing.T) {
	ctx, root := context.Background(), t.TempDir()
	all := driver.FoldersOf(root, 6)
	require.Len(t, all, 6)
	for i, o := range all {
		s, err := driver.Open(o)
		require.NoError(t, err)
		report, err := s.Check(ctx)
		require.NoError(t, err)
		require.Empty(t, report.Warnings)
		require.Equal(t, []string{"t1", "t2", "t3", "t4", "t5", "t6"}[i], s.ID())
		require.DirExists(t, filepath.Join(root, s.ID(), ".bindery"))
		require.NoError(t, s.Close())
	}
}

func TestABucketBelowAPrefix(t *testing.T) {
	srv := s3test.Start(t, s3test.Options{})
	t.Setenv("STORE_ACCESS_KEY_ID", s3test.AccessKey)
	t.Setenv("STORE_SECRET_ACCESS_KEY", s3test.SecretKey)
	s, err := driver.Open(driver.Options{
		S3:     s3.Options{Endpoint: srv.URL, Region: s3test.Region, Bucket: s3test.Bucket, AllowInsecure: true, Credentials: s3.Credentials{Source: "env", EnvPrefix: "STORE"}},
		Prefix: "bk/", Target: objstore.TargetOptions{ID: "minio"},
	})
	require.NoError(t, err)
	defer s.Close()
	_, err = s.Check(context.Background())
	require.NoError(t, err)
	_, err = s.Put(context.Background(), "o1/a", objstore.NewBody([]byte("x")), objstore.PutOptions{})
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(srv.Dir, "data", s3test.Bucket, "bk", "o1", "a"))
}

func TestBadOptionsNameTheTarget(t *testing.T) {
	for says, o := range map[string]driver.Options{
		"offload target : id is empty":                                    {},
		`offload target t1: endpoint "": it is http:// or https://`:       {Target: objstore.TargetOptions{ID: "t1"}},
		`offload target t1: dir "rel" is not an absolute path`:            {Dir: "rel", Target: objstore.TargetOptions{ID: "t1"}},
		"offload target t1: both dir and endpoint are set":                {Dir: "/d", S3: s3.Options{Endpoint: "https://h"}, Target: objstore.TargetOptions{ID: "t1"}},
		"offload target t1: open: bucket: /absent-dir is missing or empt": {Dir: "/absent-dir", Target: objstore.TargetOptions{ID: "t1"}},
		`offload target t1: prefix: key "a//b" has an empty segment`:      {Dir: t.TempDir(), CreateDir: true, Prefix: "a//b", Target: objstore.TargetOptions{ID: "t1"}},
	} {
		_, err := driver.Open(o)
		require.ErrorContains(t, err, says)
	}
}

func TestOnePlaceIsNotTwoTargets(t *testing.T) {
	root := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(root, "a"), 0o700))
	require.NoError(t, os.Symlink(filepath.Join(root, "a"), filepath.Join(root, "link")))
	load := func(second string) error {
		name := filepath.Join(root, "targets.toml")
		text := fmt.Sprintf("[[target]]\nid = \"x\"\ndir = %q\ncreate = true\n[[target]]\nid = \"y\"\n%s\n", filepath.Join(root, "a"), second)
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
		all, err := driver.Load(name)
		if err == nil {
			require.NoError(t, all.Close())
		}
		return err
	}
	for _, dir := range []string{root + "/a", root + "/a/", root + "/a/../a", root + "/link"} {
		require.ErrorContains(t, load(fmt.Sprintf("dir = %q", dir)), "offload targets x and y are the same place", dir)
	}
	require.NoError(t, load(fmt.Sprintf("dir = %q\nprefix = \"p\"", root+"/a")), "other objects")
	bucket := func(endpoint, prefix string) string {
		return fmt.Sprintf("endpoint = %q\nbucket = \"b\"\nprefix = %q\ncredentials = { source = \"env\" }", endpoint, prefix)
	}
	two := func(second string) error {
		return load(fmt.Sprintf("%s\n[[target]]\nid = \"z\"\n%s", bucket("https://s3.example:9000", "bk"), second))
	}
	require.ErrorContains(t, two(bucket("https://S3.example:9000/", "/bk/")), "offload targets y and z are the same place")
	require.NoError(t, two(bucket("https://s3.example:9000", "other")))
	require.NoError(t, two(bucket("https://s3.example:9001", "bk")))
}
