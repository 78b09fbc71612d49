package digest

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/binderylog/bindery/internal/ledger"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type hexBytes []byte

func (h *hexBytes) UnmarshalText(b []byte) error {
	v, err := hex.DecodeString(string(b))
	*h = v
	return err
}

type vectors struct {
	Keys []struct {
		Password  hexBytes `json:"password_hex"`
		MasterKey hexBytes `json:"master_key_hex"`
		HMACKey   hexBytes `json:"hmac_key_hex"`
	} `json:"keys"`
	Entries []struct {
		Digest   string   `json:"digest"`
		Password hexBytes `json:"password_hex"`
		Ledger   int64    `json:"ledgerId"`
		Entry    int64    `json:"entryId"`
		LAC      int64    `json:"lastAddConfirmed"`
		Length   int64    `json:"length"`
		Payload  hexBytes `json:"payload_hex"`
		Sum      hexBytes `json:"digest_hex"`
		Body     hexBytes `json:"body_hex"`
	} `json:"entries"`
	LACs []struct {
		Digest   string   `json:"digest"`
		Password hexBytes `json:"password_hex"`
		Ledger   int64    `json:"ledgerId"`
		LAC      int64    `json:"lac"`
		Sum      hexBytes `json:"digest_hex"`
		Body     hexBytes `json:"body_hex"`
	} `json:"explicit_lac"`
}

func load(t *testing.T) vectors {
	t.Helper()
	b, err := os.ReadFile("testdata/digests.json")
	require.NoError(t, err)
	var v vectors
	require.NoError(t, json.Unmarshal(b, &v))
	return v
}

func of(t testing.TB, name string, password []byte) *Digest {
	t.Helper()
	for _, typ := range []ledger.DigestType{ledger.DigestCRC32, ledger.DigestHMAC, ledger.DigestCRC32C, ledger.DigestDummy} {
		if typ.String() == name || (name == "MAC" && typ == ledger.DigestHMAC) {
			d, err := New(typ, password)
			require.NoError(t, err)
			return d
		}
	}
	t.Fatalf("no digest type %q", name)
	return nil
}

// TestWire67Digests is the digest half of the protocol's conformance item 67.
func TestWire67Digests(t *testing.T) {
	v := load(t)
	require.Len(t, v.Keys, 3)
	require.Len(t, v.Entries, 18)
	require.Len(t, v.LACs, 18)
	for _, k := range v.Keys {
		key := MasterKey(k.Password)
		require.Equal(t, []byte(k.MasterKey), key[:])
		mac := derive("mac", k.Password)
		require.Equal(t, []byte(k.HMACKey), mac[:])
	}
	for _, e := range v.Entries {
		d := of(t, e.Digest, e.Password)
		require.Len(t, e.Sum, d.Size())
		half := len(e.Payload) / 2
		body := d.Seal([]byte("x"), e.Ledger, e.Entry, e.LAC, e.Length, e.Payload[:half], e.Payload[half:])
		require.Equal(t, hex.EncodeToString(e.Body), hex.EncodeToString(body[1:]), "%s %d/%d", e.Digest, e.Ledger, e.Entry)
		got, err := d.Open(e.Body, e.Ledger, e.Entry)
		require.NoError(t, err)
		require.Equal(t, e.LAC, got.LAC)
		require.Equal(t, e.Length, got.Length)
		require.True(t, bytes.Equal(e.Payload, got.Payload))
	}
	for _, l := range v.LACs {
		d := of(t, l.Digest, l.Password)
		require.Equal(t, hex.EncodeToString(l.Body), hex.EncodeToString(d.SealLAC(nil, l.Ledger, l.LAC)))
		lac, err := d.OpenLAC(l.Body, l.Ledger)
		require.NoError(t, err)
		require.Equal(t, l.LAC, lac)
	}
}

func TestOpenRefusesWhatDoesNotFit(t *testing.T) {
	for _, name := range []string{"CRC32", "CRC32C", "HMAC"} {
		d := of(t, name, []byte("secret"))
		body := d.Seal(nil, 7, 3, 2, 40, []byte("payload"))
		for i := range body {
			for bit := range 8 {
				bad := bytes.Clone(body)
				bad[i] ^= 1 << bit
				_, err := d.Open(bad, 7, 3)
				var m *MismatchError
				require.ErrorAs(t, err, &m, "%s byte %d", name, i)
			}
			_, err := d.Open(body[:i], 7, 3)
			require.Error(t, err)
		}
		_, err := d.Open(body, 8, 3)
		require.ErrorContains(t, err, "belongs to entry 3 of ledger 7")
		_, err = d.Open(body, 7, 4)
		require.Error(t, err)
		_, err = d.Open(body, 7, -1)
		require.NoError(t, err, "a read of the last entry takes any id")
		lac := d.SealLAC(nil, 7, 3)
		for i := range lac {
			bad := bytes.Clone(lac)
			bad[i] ^= 0x10
			_, err := d.OpenLAC(bad, 7)
			require.Error(t, err)
			_, err = d.OpenLAC(lac[:i], 7)
			require.Error(t, err)
		}
		_, err = d.OpenLAC(lac, 8)
		require.Error(t, err)
	}
	_, err := of(t, "DUMMY", nil).Open(make([]byte, 32), 1, 0)
	require.Error(t, err, "without a digest the ids still count")
	_, err = New(9, nil)
	require.Error(t, err)
	_, _, _, _, err = Header(make([]byte, 31))
	require.Error(t, err)
	other := of(t, "HMAC", []byte("other"))
	_, err = other.Open(of(t, "HMAC", []byte("secret")).Seal(nil, 1, 2, 1, 3), 1, 2)
	require.True(t, errors.As(err, new(*MismatchError)))
}

func TestSealAndOpenAllocateNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates: runs in builds without -race")
	}
	payload := make([]byte, 1024)
	for _, name := range []string{"CRC32", "CRC32C", "HMAC", "DUMMY"} {
		d := of(t, name, nil)
		buf := make([]byte, 0, 2048)
		allocs := testing.AllocsPerRun(200, func() {
			body := d.Seal(buf, 1, 2, 1, 3, payload)
			if _, err := d.Open(body, 1, 2); err != nil {
				t.Fatal(err)
			}
		})
		require.Less(t, allocs, 1.0, name)
	}
}

func FuzzOpen(f *testing.F) {
	for _, typ := range []ledger.DigestType{ledger.DigestCRC32, ledger.DigestHMAC, ledger.DigestCRC32C, ledger.DigestDummy} {
		d, err := New(typ, []byte("pw"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint8(typ), d.Seal(nil, 1, 2, 1, 5, []byte("hello")))
		f.Add(uint8(typ), d.SealLAC(nil, 1, 2))
	}
	f.Fuzz(func(t *testing.T, typ uint8, body []byte) {
		d, err := New(ledger.DigestType(typ), []byte("pw"))
		if err != nil {
			return
		}
		if e, err := d.Open(body, 1, -1); err == nil {
			require.Equal(t, body, d.Seal(nil, 1, e.Entry, e.LAC, e.Length, e.Payload))
		}
		if lac, err := d.OpenLAC(body, 1); err == nil {
			require.Equal(t, body[:LACHeaderSize+d.Size()], d.SealLAC(nil, 1, lac))
		}
		_, _, _, _, _ = Header(body)
	})
}
