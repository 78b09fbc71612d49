package metadata

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/corrupt"
	"github.com/binderylog/bindery/internal/ledger"
)

func TestMarkText(t *testing.T) {
	m := Mark{Replicas: []ledger.BookieID{"b1:3181", "b2:3181"}, CTime: 1700000000123}
	text := encodeMark(m)
	require.Equal(t, "replica: \"b1:3181\"\nreplica: \"b2:3181\"\nctime: 1700000000123\n", string(text))
	got, err := decodeMark("k", text)
	require.NoError(t, err)
	require.Equal(t, m, got)

	got, err = decodeMark("k", nil)
	require.NoError(t, err)
	require.Empty(t, got.Replicas, "a mark without bookies asks for a look")
	got, err = decodeMark("k", []byte(`replica: "a" later: 7 replica: "b"`))
	require.NoError(t, err)
	require.Equal(t, []ledger.BookieID{"a", "b"}, got.Replicas)
	for _, bad := range []string{"replica: 7", "replica: \"a", "ctime: \"x\"", "{"} {
		_, err := decodeMark("k", []byte(bad))
		require.True(t, corrupt.Is(err), "%q: %v", bad, err)
	}
}

func TestHolderText(t *testing.T) {
	require.Equal(t, "bookieId: \"host-1\"\n", string(encodeHolder("host-1")))
	require.Equal(t, "host-1", decodeHolder(encodeHolder("host-1")))
	require.Equal(t, "bk1:3181", decodeHolder([]byte(`"bk1:3181"`)), "Pulsar writes JSON")
	require.Equal(t, "what?", decodeHolder([]byte("what\xff")))
}

func TestCheckTimeBytes(t *testing.T) {
	require.Equal(t, []byte{0x08, 0xac, 0x02}, encodeCheckTime(300))
	for _, ms := range []int64{-1, 0, 300, 1700000000123} {
		got, err := decodeCheckTime("k", encodeCheckTime(ms))
		require.NoError(t, err)
		require.Equal(t, ms, got)
	}
	for _, bad := range [][]byte{nil, {0x08}, {0x12, 0x01, 'x'}} {
		_, err := decodeCheckTime("k", bad)
		require.True(t, corrupt.Is(err), "%x: %v", bad, err)
	}
}

func TestMarkKeys(t *testing.T) {
	r := NewReplication(nil, "/ledgers")
	for id, want := range map[ledger.ID]string{
		0:          "0000/0000/0000/0000/urL0000000000",
		10000:      "0000/0000/0000/2710/urL0000010000",
		123456789:  "0000/0000/075b/cd15/urL0123456789",
		2147483647: "0000/0000/7fff/ffff/urL2147483647",
		4294967301: "0000/0001/0000/0005/urL4294967301",
	} {
		key := r.MarkKey(id)
		require.Equal(t, "/ledgers/underreplication/ledgers/"+want, key)
		got, ok := parseMarkKey(key)
		require.True(t, ok)
		require.Equal(t, id, got)
	}
	for _, key := range []string{"/x/0000", "/x/urL", "/x/urLx", "/x/urL99999999999999999999"} {
		_, ok := parseMarkKey(key)
		require.False(t, ok, key)
	}
}

func FuzzDecodeMark(f *testing.F) {
	f.Add([]byte("replica: \"b1:3181\"\nctime: 1\n"))
	f.Add([]byte(`replica: [ "a", "b" ]`))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decodeMark("k", b)
		if err != nil {
			return
		}
		again, err := decodeMark("k", encodeMark(m))
		if err != nil || len(again.Replicas) != len(m.Replicas) || again.CTime != m.CTime {
			t.Fatalf("%q: %v, %v, %v", b, m, again, err)
		}
	})
}
