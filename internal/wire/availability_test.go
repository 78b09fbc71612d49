package wire

import (
	"encoding/hex"
	"encoding/json"
	"math"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

type availabilityVector struct {
	Input   []int64 `json:"input_entry_ids"`
	Total   int64   `json:"total"`
	Hex     string  `json:"encoded_hex"`
	Entries []int64 `json:"entry_ids"`
}

func ids(a Availability) []int64 {
	out := []int64{}
	for r := range a.Runs() {
		for i := range r.Count {
			out = append(out, r.First+i)
		}
	}
	return out
}

func TestWire61AvailabilityVectors(t *testing.T) {
	b, err := os.ReadFile("testdata/bookie-availability.json")
	require.NoError(t, err)
	var v struct {
		Encode     []availabilityVector `json:"encode"`
		DecodeOnly []availabilityVector `json:"decode_only"`
	}
	require.NoError(t, json.Unmarshal(b, &v))
	require.Len(t, v.Encode, 7)
	require.Len(t, v.DecodeOnly, 3)
	for _, row := range v.Encode {
		var runs []Run
		for _, id := range row.Input {
			runs = AppendRun(runs, id)
		}
		encoded := AppendAvailability([]byte("x"), runs)
		require.Equal(t, row.Hex, hex.EncodeToString(encoded[1:]))
		require.Len(t, encoded[1:], AvailabilitySize(len(runs)))
		row.Entries = nil
		for _, r := range runs {
			for i := range r.Count {
				row.Entries = append(row.Entries, r.First+i)
			}
		}
		checkAvailability(t, row)
	}
	for _, row := range v.DecodeOnly {
		checkAvailability(t, row)
	}
}

func checkAvailability(t *testing.T, row availabilityVector) {
	t.Helper()
	raw, err := hex.DecodeString(row.Hex)
	require.NoError(t, err)
	a, err := DecodeAvailability(raw)
	require.NoError(t, err)
	require.Equal(t, row.Total, a.Count())
	want := map[int64]bool{}
	for _, id := range row.Entries {
		want[id] = true
	}
	require.Len(t, want, int(row.Total))
	for id := int64(-3); id < 250; id++ {
		require.Equal(t, want[id], a.Contains(id), "entry %d", id)
	}
	require.Len(t, ids(a), int(row.Total))
}

func TestAvailabilityRefusesWhatIsNoList(t *testing.T) {
	good := AppendAvailability(nil, []Run{{0, 3}, {10, 1}})
	for i := range good {
		_, err := DecodeAvailability(good[:i])
		require.Error(t, err)
	}
	for _, runs := range [][]Run{{{5, 2}, {1, 1}}, {{5, 2}, {6, 1}}, {{-4, 2}}, {{math.MaxInt64, 2}}} {
		_, err := DecodeAvailability(AppendAvailability(nil, runs))
		require.Error(t, err, "%v", runs)
	}
	top, err := DecodeAvailability(AppendAvailability(nil, AppendRun([]Run{{math.MaxInt64 - 2, 2}}, math.MaxInt64)))
	require.NoError(t, err)
	require.Equal(t, int64(3), top.Count())
	require.True(t, top.Contains(math.MaxInt64))
	good[3] = 1
	_, err = DecodeAvailability(good)
	require.ErrorContains(t, err, "version 1")
	long, err := DecodeAvailability(AppendAvailability(nil, []Run{{0, math.MaxInt32 + 10}}))
	require.NoError(t, err)
	require.Equal(t, int64(math.MaxInt32+10), long.Count())
	require.True(t, long.Contains(math.MaxInt32+9))
	require.False(t, long.Contains(math.MaxInt32+10))
}
