package metadata

import (
	"encoding/hex"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/corrupt"
	"github.com/binderylog/bindery/internal/ledger"
)

func TestServiceInfoGolden(t *testing.T) {
	s := ServiceInfo{Endpoints: []Endpoint{{ID: "bookie", Port: 3181, Host: "b1", Protocol: "bookie-rpc"}}}
	b := EncodeServiceInfo(s)
	require.Equal(t, "321b0a06626f6f6b696510ed181a026231220a626f6f6b69652d727063", hex.EncodeToString(b))
	got, err := DecodeServiceInfo("k", b)
	require.NoError(t, err)
	require.Equal(t, s, got)

	s.Endpoints[0].Extensions, s.Endpoints[0].Auth = []string{"tls"}, []string{"a", "b"}
	s.Endpoints = append(s.Endpoints, Endpoint{ID: "httpserver", Port: 8000, Host: "::1", Protocol: "http"})
	s.Properties = map[string]string{"z": "", "a": "1", PropertyIncarnation: "x", PropertyEpoch: "9"}
	b = EncodeServiceInfo(s)
	got, err = DecodeServiceInfo("k", b)
	require.NoError(t, err)
	require.Equal(t, s, got)
	inc, epoch, ok := got.Incarnation()
	require.Equal(t, "x", inc)
	require.Equal(t, uint64(9), epoch)
	require.True(t, ok)

	// Fields of the future are passed over.
	got, err = DecodeServiceInfo("k", append(appendString(nil, 90, "new"), b...))
	require.NoError(t, err)
	require.Equal(t, s, got)
	got, err = DecodeServiceInfo("k", nil)
	require.NoError(t, err)
	require.Equal(t, ServiceInfo{}, got)
}

func TestServiceInfoRejections(t *testing.T) {
	for name, b := range map[string]string{
		"torn":           "321b0a0662",
		"no host":        "32140a06626f6f6b696510ed18220a626f6f6b69652d7270",
		"not UTF-8":      "321b0a06626f6f6b696510ed181a02ffff220a626f6f6b69652d727063",
		"port too large": "32200a06626f6f6b696510ffffffffff7f1a026231220a626f6f6b69652d727063",
		"property":       "3a040a02ffff",
	} {
		raw, err := hex.DecodeString(b)
		require.NoError(t, err)
		_, err = DecodeServiceInfo("/ledgers/available/b1", raw)
		require.True(t, corrupt.Is(err), "%s: %v", name, err)
	}
}

func TestServiceInfoAddress(t *testing.T) {
	for _, tc := range []struct {
		id   ledger.BookieID
		info ServiceInfo
		want string
	}{
		{"uuid-1", ServiceInfo{Endpoints: []Endpoint{{ID: "h", Host: "h", Port: 1, Protocol: "http"}, {ID: "b", Host: "h", Port: 2, Protocol: "bookie-rpc"}}}, "h:2"},
		{"uuid-1", ServiceInfo{Endpoints: []Endpoint{{Host: "fe80::1", Port: 3181, Protocol: "bookie-rpc"}}}, "[fe80::1]:3181"},
		{"b1:3181", ServiceInfo{}, "b1:3181"},
		{"uuid-1", ServiceInfo{}, ""},
		{"b1:0", ServiceInfo{}, ""},
		{"b1:x", ServiceInfo{}, ""},
		{"b1:3181", ServiceInfo{Endpoints: []Endpoint{{Host: "h", Port: 1, Protocol: "http"}}}, ""},
	} {
		got, err := tc.info.Address(tc.id)
		require.Equal(t, tc.want, got)
		require.Equal(t, tc.want == "", err != nil)
	}
}

const goldenCookie = "5\n" +
	"bookieHost: \"b1:3181\"\n" +
	"journalDir: \"/data/journal1,/data/journal2\"\n" +
	"ledgerDirs: \"2\\t/data/ledger1\\t/data/ledger2\"\n" +
	"instanceId: \"3f0c9f1e-0000-4000-8000-000000000000\"\n" +
	"indexDirs: \"1\\t/data/index\"\n"

func TestCookieGolden(t *testing.T) {
	want := Cookie{
		Version: 5, BookieHost: "b1:3181", JournalDirs: []string{"/data/journal1", "/data/journal2"},
		LedgerDirs: []string{"/data/ledger1", "/data/ledger2"}, InstanceID: "3f0c9f1e-0000-4000-8000-000000000000", IndexDirs: []string{"/data/index"},
	}
	c, err := DecodeCookie("VERSION", []byte(goldenCookie))
	require.NoError(t, err)
	require.Equal(t, want, c)
	b, err := EncodeCookie(c)
	require.NoError(t, err)
	require.Equal(t, goldenCookie, string(b))

	// Without instance id and index directories, and of layout 4.
	c, err = DecodeCookie("VERSION", []byte("4\nbookieHost: \"b\"\njournalDir: \"/j\"\nledgerDirs: \"1\\t/l\"\n"))
	require.NoError(t, err)
	require.Equal(t, Cookie{Version: 4, BookieHost: "b", JournalDirs: []string{"/j"}, LedgerDirs: []string{"/l"}}, c)
	b, err = EncodeCookie(c)
	require.NoError(t, err)
	require.Equal(t, "5\nbookieHost: \"b\"\njournalDir: \"/j\"\nledgerDirs: \"1\\t/l\"\n", string(b))

	// Layout 3 is three raw lines; rewritten, it becomes layout 5 in whole.
	c, err = DecodeCookie("VERSION", []byte("3\nb\n/j\n2\t/l1\t/l2\n"))
	require.NoError(t, err)
	require.Equal(t, Cookie{Version: 3, BookieHost: "b", JournalDirs: []string{"/j"}, LedgerDirs: []string{"/l1", "/l2"}}, c)
	b, err = EncodeCookie(c)
	require.NoError(t, err)
	require.Equal(t, "5\nbookieHost: \"b\"\njournalDir: \"/j\"\nledgerDirs: \"2\\t/l1\\t/l2\"\n", string(b))
}

func TestCookieRejections(t *testing.T) {
	for name, text := range map[string]string{
		"empty":         "",
		"no number":     "x\n",
		"no body":       "5\n",
		"no host":       strings.Replace(goldenCookie, "bookieHost", "instanceId", 1),
		"empty host":    strings.Replace(goldenCookie, "b1:3181", "", 1),
		"empty journal": strings.Replace(goldenCookie, "/data/journal1,", ",", 1),
		"count":         strings.Replace(goldenCookie, "2\\t", "3\\t", 1),
		"count 0":       strings.Replace(goldenCookie, "2\\t/data/ledger1\\t/data/ledger2", "0", 1),
		"no list":       strings.Replace(goldenCookie, "2\\t", "", 1),
		"unknown":       goldenCookie + "color: \"red\"\n",
		"a number":      goldenCookie + "instanceId: 5\n",
		"layout 3":      "3\nb\n/j\n",
		"layout 3 list": "3\nb\n/j\n/l\n",
		"huge":          goldenCookie + strings.Repeat("#", ValueMax),
	} {
		_, err := DecodeCookie("/d/current/VERSION", []byte(text))
		require.True(t, corrupt.Is(err), "%s: %v", name, err)
	}
	_, err := DecodeCookie("VERSION", []byte("2\nb\n/j\n1\t/l\n"))
	require.ErrorIs(t, err, ErrCookieTooOld)
	_, err = DecodeCookie("VERSION", []byte("6\n"))
	require.ErrorIs(t, err, ErrFormatTooNew)
	for name, c := range map[string]Cookie{
		"nothing": {}, "comma": {BookieHost: "b", JournalDirs: []string{"/a,b"}, LedgerDirs: []string{"/l"}},
		"tab": {BookieHost: "b", JournalDirs: []string{"/a"}, LedgerDirs: []string{"/l\t"}},
	} {
		_, err := EncodeCookie(c)
		require.Error(t, err, name)
	}
}

func TestLayout(t *testing.T) {
	b := EncodeLayout(DefaultLayout)
	require.Equal(t, "2\norg.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory:1", string(b))
	for text, want := range map[string]Layout{
		string(b):           DefaultLayout,
		string(b) + "\n":    DefaultLayout,
		"1\nhierarchical:1": DefaultLayout,
		"2\norg.apache.bookkeeper.meta.LongHierarchicalLedgerManagerFactory:1": {"org.apache.bookkeeper.meta.LongHierarchicalLedgerManagerFactory", 1},
	} {
		l, err := DecodeLayout("k", []byte(text))
		require.NoError(t, err)
		require.Equal(t, want, l)
		_, err = l.Scheme()
		require.NoError(t, err)
	}
	for _, text := range []string{"", "2", "3\nx:1", "x\nx:1", "2\nx", "2\nx:y", "2\n:1", "2\na:b:1", strings.Repeat("2\n", 2000)} {
		_, err := DecodeLayout("k", []byte(text))
		require.True(t, corrupt.Is(err), "%q: %v", text, err)
	}
	for _, l := range []Layout{{"org.apache.bookkeeper.meta.FlatLedgerManagerFactory", 1}, {"x", 1}, {DefaultLayout.Class, 2}} {
		_, err := l.Scheme()
		require.ErrorIs(t, err, ErrLayout)
	}
}

func TestIncarnationRecord(t *testing.T) {
	r := &Incarnation{Number: 2, ID: "i", Instance: "c", EverLost: true, Loss: "why", Start: "s", Directories: map[string]Directory{
		"d1": {Incarnation: 1, Epoch: 9, Path: "/a", Kinds: "journal"}, "d2": {Incarnation: 2, Epoch: 9, Path: "/b", Kinds: "index,ledger"},
	}}
	b, err := EncodeIncarnation(r)
	require.NoError(t, err)
	got, err := DecodeIncarnation("k", b)
	require.NoError(t, err)
	require.Equal(t, r, got)
	c := r.Clone()
	c.Directories["d1"] = Directory{}
	require.Equal(t, uint64(9), r.Directories["d1"].Epoch)
	for name, text := range map[string]string{
		"no JSON": "x", "format 0": `{"incarnation":1,"id":"x"}`, "number 0": `{"format":1,"id":"x"}`, "no id": `{"format":1,"incarnation":1}`,
		"unknown field":           `{"format":1,"incarnation":1,"id":"x","colour":"red"}`,
		"directory of the future": `{"format":1,"incarnation":1,"id":"x","directories":{"d":{"incarnation":2,"epoch":1}}}`,
		"directory without id":    `{"format":1,"incarnation":1,"id":"x","directories":{"":{"incarnation":1,"epoch":1}}}`,
		"epoch":                   `{"format":1,"incarnation":1,"id":"x","directories":{"d":{"incarnation":1,"epoch":18446744073709551615}}}`,
		"trailing":                `{"format":1,"incarnation":1,"id":"x"} x`,
	} {
		_, err := DecodeIncarnation("k", []byte(text))
		require.True(t, corrupt.Is(err), "%s: %v", name, err)
	}
	_, err = DecodeIncarnation("k", []byte(`{"format":2,"whatever":1}`))
	require.ErrorIs(t, err, ErrFormatTooNew)
}

func TestLedgerPaths(t *testing.T) {
	for _, tc := range []struct {
		id           ledger.ID
		hybrid, long string
	}{
		{0, "00/0000/L0000", "000/0000/0000/0000/L0000"},
		{42, "00/0000/L0042", "000/0000/0000/0000/L0042"},
		{10000, "00/0001/L0000", "000/0000/0000/0001/L0000"},
		{123456789, "01/2345/L6789", "000/0000/0001/2345/L6789"},
		{2147483646, "21/4748/L3646", "000/0000/0021/4748/L3646"},
		{2147483647, "000/0000/0021/4748/L3647", "000/0000/0021/4748/L3647"},
		{4294967301, "000/0000/0042/9496/L7301", "000/0000/0042/9496/L7301"},
		{9223372036854775807, "922/3372/0368/5477/L5807", "922/3372/0368/5477/L5807"},
	} {
		for s, path := range map[Scheme]string{SchemeHybrid: tc.hybrid, SchemeLong: tc.long} {
			require.Equal(t, path, s.LedgerPath(tc.id))
			id, parent, err := s.ParseLedgerPath(path)
			require.NoError(t, err)
			require.False(t, parent)
			require.Equal(t, tc.id, id)
		}
	}
	for _, p := range []string{"00", "00/0000", "000", "000/0000", "000/0000/0000", "000/0000/0000/0000"} {
		_, parent, err := SchemeHybrid.ParseLedgerPath(p)
		require.NoError(t, err)
		require.True(t, parent, p)
	}
	for _, p := range []string{
		"", "/", "0", "0000", "00/000", "00/0000/0000", "00/0000/L004", "00/0000/L00042", "00/0000/l0042", "00/0000/L+042", "22/0000/L0000", "21/4748/L3647",
		"000/0000/0000/0000/L0042", "999/9999/9999/9999/L9999", "00/0000/L0042/x", "00//L0042", "00/0000/L0042 ", "LAYOUT", "000/0000/0000/0000/0000",
	} {
		_, parent, err := SchemeHybrid.ParseLedgerPath(p)
		require.Error(t, err, p)
		require.False(t, parent)
	}
	_, _, err := SchemeLong.ParseLedgerPath("00/0000/L0042")
	require.Error(t, err)
}

func TestCleanRoot(t *testing.T) {
	for in, want := range map[string]string{"": "/ledgers", "/ledgers": "/ledgers", "/a/b/": "/a/b"} {
		got, err := CleanRoot(in)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	for _, bad := range []string{"/", "x", "//", "/a//b", "/a/../b", "/.", "/" + strings.Repeat("x", 600)} {
		_, err := CleanRoot(bad)
		require.Error(t, err, bad)
	}
}

func TestCheckBookieID(t *testing.T) {
	for _, ok := range []ledger.BookieID{"b1:3181", "10.0.0.1:3181", "bookie-1", "A_b", "a@b", "x<y", "[::1]:3181"} {
		require.NoError(t, CheckBookieID(ok), ok)
	}
	for _, bad := range []ledger.BookieID{"", "a/b", "a b", "readonly", "ReadOnly", "a\tb", "é", "a,b", "a*", "a`b", ledger.BookieID(strings.Repeat("x", 256))} {
		require.Error(t, CheckBookieID(bad), bad)
	}
}

func TestConflictError(t *testing.T) {
	exists := &ConflictError{Key: "k", Want: Absent, Have: 3}
	require.ErrorIs(t, exists, ErrExists)
	require.NotErrorIs(t, exists, ErrNotFound)
	require.Equal(t, "metadata: k exists (version 3)", exists.Error())
	gone := &ConflictError{Key: "k", Want: 3, Have: Absent}
	require.ErrorIs(t, gone, ErrNotFound)
	require.Equal(t, "metadata: k does not exist (expected version 3)", gone.Error())
	other := &ConflictError{Key: "k", Want: 3, Have: 4}
	require.ErrorIs(t, other, ErrVersion)
	require.NotErrorIs(t, other, ErrUnavailable)
	require.Equal(t, "metadata: k has version 4, expected 3", other.Error())
}
