package config

import (
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMerge: the file as it was, with one thing changed.
func TestMerge(t *testing.T) {
	io := Edit{"journal.io", `"dsync"`, "p99 71us, 9/9 rounds"}
	group := Edit{"journal.max_group_bytes", `"256KiB"`, "knee"}
	write := Edit{"storage.cache.write", `"64MiB"`, "why"}
	for _, tc := range []struct {
		name       string
		edits      []Edit
		text, want string
	}{
		{"an empty file", []Edit{io, group}, "", "[journal]\nio = \"dsync\"  # iobench p99 71us, 9/9 rounds\nmax_group_bytes = \"256KiB\"  # iobench knee\n"},
		{"no such table, no end of line", []Edit{io}, "# mine\n[bookie]\nid = \"a\"", "# mine\n[bookie]\nid = \"a\"\n\n[journal]\nio = \"dsync\"  # iobench p99 71us, 9/9 rounds\n"},
		{"a value in place", []Edit{io}, "[journal]\nio   =  'auto'\nsegment_size = \"64MiB\"   # small disk\n", "[journal]\nio   =  \"dsync\"  # iobench p99 71us, 9/9 rounds\nsegment_size = \"64MiB\"   # small disk\n"},
		{"blanks behind it", []Edit{io}, "[journal]\nio = 'auto'  \t\n", "[journal]\nio = \"dsync\"  # iobench p99 71us, 9/9 rounds\n"},
		{"somebody's comment", []Edit{io}, "[journal]\n  # keep\n  io = \"auto\" # do not touch, see the wiki\n", "[journal]\n  # keep\n  # iobench p99 71us, 9/9 rounds\n  io = \"dsync\" # do not touch, see the wiki\n"},
		{"our own comment of the last time", []Edit{io}, "[journal]\nio = \"fdatasync\"    # iobench of last year\n", "[journal]\nio = \"dsync\"    # iobench p99 71us, 9/9 rounds\n"},
		{"our own comment above", []Edit{io}, "[journal]\n# iobench of last year\nio = \"fdatasync\" # mine\n", "[journal]\n# iobench p99 71us, 9/9 rounds\nio = \"dsync\" # mine\n"},
		{"the same value", []Edit{io}, "[journal]\nio = \"dsync\" # iobench of last year\n", "[journal]\nio = \"dsync\" # iobench of last year\n"},
		{"no comment", []Edit{{"journal.io", `"dsync"`, ""}}, "[journal]\nio = \"auto\" # mine\n", "[journal]\nio = \"dsync\" # mine\n"},
		{"behind the last value of its table", []Edit{group}, "[journal]\nio = \"auto\"\n\n# about garbage\n[gc]\nrate = \"auto\"\n", "[journal]\nio = \"auto\"\nmax_group_bytes = \"256KiB\"  # iobench knee\n\n# about garbage\n[gc]\nrate = \"auto\"\n"},
		{"a table without a value", []Edit{group}, "[journal] # the log\n\n[gc]\n", "[journal] # the log\nmax_group_bytes = \"256KiB\"  # iobench knee\n\n[gc]\n"},
		{"dotted keys", []Edit{group}, "journal.io = \"auto\"\nlog.level = \"info\"\n", "journal.io = \"auto\"\njournal.max_group_bytes = \"256KiB\"  # iobench knee\nlog.level = \"info\"\n"},
		{"an inline table", []Edit{group}, "journal = { io = \"auto\" } # mine\n", "# iobench knee\njournal = { io = \"auto\", max_group_bytes = \"256KiB\" } # mine\n"},
		{"an empty inline table", []Edit{group}, "journal = {}\n", "# iobench knee\njournal = { max_group_bytes = \"256KiB\" }\n"},
		{"a value in an inline table", []Edit{io}, "journal = { io = \"auto\", segment_size = \"64MiB\" }\n", "# iobench p99 71us, 9/9 rounds\njournal = { io = \"dsync\", segment_size = \"64MiB\" }\n"},
		{"a table in a table", []Edit{write}, "[storage]\nmemory = \"1GiB\"\n", "[storage]\nmemory = \"1GiB\"\ncache.write = \"64MiB\"  # iobench why\n"},
		{"a table in a table, inline", []Edit{write}, "[storage]\ncache = { read = \"auto\" }\n", "[storage]\n# iobench why\ncache = { read = \"auto\", write = \"64MiB\" }\n"},
		{"a table in a table, of its own", []Edit{write}, "[storage]\nmemory = \"1GiB\"\n[storage.cache]\nread = \"auto\"\n", "[storage]\nmemory = \"1GiB\"\n[storage.cache]\nread = \"auto\"\nwrite = \"64MiB\"  # iobench why\n"},
		{"only the table below", []Edit{{"gc.rate", `"180MB/s"`, "r"}}, "[gc.minor]\nbelow = 0.1\n", "[gc.minor]\nbelow = 0.1\n\n[gc]\nrate = \"180MB/s\"  # iobench r\n"},
		{"unknown keys and tables", []Edit{io}, "[journal]\nfuture = [1,\n  2] # x\n[ours]\nio = \"auto\"\n", "[journal]\nfuture = [1,\n  2] # x\n  io = \"dsync\"  # iobench p99 71us, 9/9 rounds\n[ours]\nio = \"auto\"\n"},
		{"line ends of Windows", []Edit{io, group}, "# a\r\n[journal]\r\nio = \"auto\"\r\n", "# a\r\n[journal]\r\nio = \"dsync\"  # iobench p99 71us, 9/9 rounds\r\nmax_group_bytes = \"256KiB\"  # iobench knee\r\n"},
		{"quoted keys", []Edit{io}, "[\"journal\"]\n'io' = \"auto\"\n", "[\"journal\"]\n'io' = \"dsync\"  # iobench p99 71us, 9/9 rounds\n"},
		{"text that looks like a table", []Edit{io}, "[bookie]\nid = '''\n[journal]\nio = 1'''\n", "[bookie]\nid = '''\n[journal]\nio = 1'''\n\n[journal]\nio = \"dsync\"  # iobench p99 71us, 9/9 rounds\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := Merge([]byte(tc.text), "iobench", tc.edits)
			require.NoError(t, err)
			require.Equal(t, tc.want, string(got))
			again, err := Merge(got, "iobench", tc.edits)
			require.NoError(t, err)
			require.Equal(t, string(got), string(again), "a second merge changes nothing")
		})
	}
}

func TestMergeRefuses(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		edit       Edit
		want       string
	}{
		{"no TOML", "[journal\n", Edit{"journal.io", `"dsync"`, ""}, "line:1"},
		{"no setting", "", Edit{"journal.oi", `"dsync"`, ""}, "did you mean journal.io?"},
		{"no value", "", Edit{"journal.io", `dsync`, ""}, "is not a value"},
		{"another type", "", Edit{"journal.io", `3`, ""}, "needs a string"},
		{"no unit", "", Edit{"journal.max_group_bytes", `"3"`, ""}, "has no unit"},
		{"two lines", "", Edit{"journal.io", "\"dsync\"\nx = 1", ""}, "control character"},
		{"a comment of two lines", "", Edit{"journal.io", `"dsync"`, "a\n[x]"}, "control character"},
		{"more than a value", "", Edit{"journal.io", `"dsync" # x`, ""}, ""},
		{"a list of tables where the table would be", "[[journal]]\nio = \"auto\"\n", Edit{"journal.io", `"dsync"`, ""}, "write it yourself"},
		{"a value where the table would be", "journal = 1\n", Edit{"journal.io", `"dsync"`, ""}, "write it yourself"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := Merge([]byte(tc.text), "iobench", []Edit{tc.edit})
			if tc.want == "" { // a comment in the value is odd, but harmless
				require.NoError(t, err)
				require.Contains(t, string(got), `io = "dsync"`)
				return
			}
			require.ErrorContains(t, err, tc.want)
			require.Nil(t, got)
		})
	}
	_, err := Merge(make([]byte, fileBytesMax+1), "iobench", nil)
	require.ErrorContains(t, err, "1 MiB")
}

// TestBufferedIsDurable: on spinning disks iobench recommends the page cache followed by fdatasync, which sync can be had with.
func TestBufferedIsDurable(t *testing.T) {
	text, err := Merge([]byte("[metadata]\nuri = \"etcd://a:1/ledgers\"\n"), "iobench", []Edit{{"journal.io", `"buffered"`, ""}})
	require.NoError(t, err)
	l, err := LoadText(text)
	require.NoError(t, err)
	require.Equal(t, "sync", l.Journal.Durability)
	require.Equal(t, "buffered", l.Journal.IO)
}

func FuzzMerge(f *testing.F) {
	f.Add("[journal]\nio = \"auto\" # mine\n")
	f.Add("journal = { io = \"auto\", }\n[gc]\n")
	f.Add("a.b = 1\r\njournal.io = '''x'''\r\n[x]\ny = [1,\r\n2]\r\n")
	f.Add("[journal.x]\n[storage]\ncache.read = 'auto'\n")
	edits := []Edit{{"journal.io", `"dsync"`, "a"}, {"gc.rate", `"180MB/s"`, "b"}, {"storage.cache.write", `"64MiB"`, ""}}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := Merge([]byte(text), "iobench", edits)
		if err != nil {
			return
		}
		before, err := tomlTree([]byte(text))
		require.NoError(t, err)
		after, err := tomlTree(got)
		require.NoError(t, err)
		for _, e := range edits {
			v, ok := lookUp(after, e.Key)
			require.True(t, ok, e.Key)
			require.Equal(t, strings.Trim(e.Value, `"`), v)
			remove(before, e.Key)
			remove(after, e.Key)
		}
		require.True(t, reflect.DeepEqual(before, after), "%q\n%q", text, got)
		again, err := Merge(got, "iobench", edits)
		require.NoError(t, err)
		require.Equal(t, string(got), string(again))
	})
}
