package driver

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/offload"
	"github.com/binderylog/bindery/offload/objstore"
)

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{"a", "b"} {
		s, err := Open(FoldersOf(filepath.Join(dir, d), 1)[0]) // makes the folder
		require.NoError(t, err)
		require.NoError(t, s.Close())
	}
	name := filepath.Join(dir, "targets.toml")
	put := func(text string) { require.NoError(t, os.WriteFile(name, []byte(text), 0o600)) }
	put(`
[[target]]
id = "a"
domain = "east"
dir = "` + dir + `/a/t1"

[[target]]
id = "b"
dir = "` + dir + `/c"
create = true
prefix = "bk/prod"

[[target]]
id = "minio"
endpoint = "https://minio.example:9000"
bucket = "ledgers"
checksum = "md5"
credentials = { source = "env", env_prefix = "MINIO" }
`)
	all, err := Load(name)
	require.NoError(t, err)
	require.Equal(t, []offload.Place{{Target: "a", Domain: "east"}, {Target: "b", Domain: "target b"}, {Target: "minio", Domain: "target minio"}}, all.Places())
	require.Len(t, all.Stores, 3)
	require.Equal(t, []Location{{"dir", dir + "/a/t1"}, {"dir", dir + "/c/bk/prod"}, {"s3", "https://minio.example:9000/ledgers"}}, all.Where)
	require.NoError(t, all.Close())

	for text, want := range map[string]string{
		"":                                "it has no [[target]]",
		"[[target]]\nid = \"a\"\ndri=1\n": "line 3: there is no setting target.dri",
		"[[target]]\nid = a\n":            "line 2: ",
		"[[target]]\nid = \"a\"\n":        "offload target a: ",
		"[[target]]\nid = \"a\"\ndir = \"" + dir + "/a/t1\"\n[[target]]\nid = \"a\"\ndir = \"" + dir + "/b/t1\"\n": "target a is configured twice",
	} {
		put(text)
		_, err := Load(name)
		require.ErrorContains(t, err, want)
	}
	_, err = Load(filepath.Join(dir, "none"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

// TestAFolderThatIsNotMountedKeepsNobodyFromTheOthers: it is used as soon as it is there.
func TestAFolderThatIsNotMountedKeepsNobodyFromTheOthers(t *testing.T) {
	root := t.TempDir()
	name := filepath.Join(root, "targets.toml")
	text := fmt.Sprintf("[[target]]\nid = \"here\"\ndir = %q\ncreate = true\n[[target]]\nid = \"away\"\ndir = %q\n", root+"/here", root+"/away")
	require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	all, err := Load(name)
	require.NoError(t, err)
	require.Len(t, all.Down, 1)
	require.ErrorContains(t, all.Down[0], "offload target away: open: bucket: "+root+"/away is missing or empty; mount its disk")
	here, away := all.Stores[0], all.Stores[1]
	_, err = here.Put(t.Context(), "o1/a", objstore.NewBody([]byte("x")), objstore.PutOptions{})
	require.NoError(t, err)
	_, err = away.Put(t.Context(), "o1/a", objstore.NewBody([]byte("x")), objstore.PutOptions{})
	require.Equal(t, objstore.KindBucket, objstore.KindOf(err))
	require.NoDirExists(t, root+"/away")
	_, err = away.Head(t.Context(), "o1/a")
	require.Equal(t, objstore.KindBucket, objstore.KindOf(err), "what is not mounted is not absent")
	_, err = away.List(t.Context(), "", "", 0)
	require.Equal(t, objstore.KindBucket, objstore.KindOf(err))
	require.NoError(t, os.CopyFS(root+"/away", os.DirFS(root+"/here")))
	info, err := away.Head(t.Context(), "o1/a")
	require.NoError(t, err)
	require.EqualValues(t, 1, info.Size)
	require.NoError(t, all.Close())
}

func FuzzTargetsFile(f *testing.F) {
	f.Add([]byte("[[target]]\nid = \"a\"\ndir = \"/x\"\n"))
	f.Add([]byte("[[target]]\nid = \"m\"\nendpoint = \"http://h\"\ncredentials = { source = \"iam\" }\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		list, err := parse(data)
		require.Equal(t, err == nil, len(list) > 0)
	})
}
