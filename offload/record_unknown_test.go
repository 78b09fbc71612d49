package offload

import (
	"bytes"
	"fmt"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/binderylog/bindery/internal/protofield"
)

// flattened are structs that are no messages of their own: their fields stand in the record.
var flattened = map[reflect.Type]bool{reflect.TypeFor[Geometry](): true, reflect.TypeFor[ManifestRef](): true}

// unknownsOf calls f with the Unknown of a message and of every message in it. A message without one fails the test.
func unknownsOf(t testing.TB, v reflect.Value, f func(message string, unknown *[]byte)) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			unknownsOf(t, v.Elem(), f)
		}
	case reflect.Slice:
		for i := range v.Len() {
			unknownsOf(t, v.Index(i), f)
		}
	case reflect.Struct:
		if !flattened[v.Type()] {
			u := v.FieldByName("Unknown")
			require.True(t, u.IsValid(), "%s has no Unknown: fields of newer versions would be lost", v.Type())
			f(v.Type().Name(), u.Addr().Interface().(*[]byte))
		}
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				unknownsOf(t, v.Field(i), f)
			}
		}
	}
}

// ofALaterVersion is the golden record with a field that this version does not know in every message.
func ofALaterVersion(t testing.TB, num protowire.Number, payload []byte) *Record {
	r := goldenRecord()
	seen := map[string]int{}
	unknownsOf(t, reflect.ValueOf(r), func(message string, unknown *[]byte) {
		*unknown = putBytes(putInt(nil, num, int64(len(seen)+1)), num+1, payload)
		seen[message]++
	})
	require.Equal(t, map[string]int{"Record": 1, "Placement": 3, "Move": 1, "WrappedKey": 1, "Garbage": 1, "Stale": 1}, seen)
	return r
}

// fieldsOf counts the fields of a record's stored form, messages taken apart.
func fieldsOf(t testing.TB, stored []byte) map[string]int {
	_, body, ok := bytes.Cut(stored, []byte("\n"))
	require.True(t, ok)
	_, n := protowire.ConsumeVarint(body)
	require.Positive(t, n)
	messages := map[string]bool{"/9": true, "/9/4": true, "/16": true, "/21": true, "/22": true}
	out := map[string]int{}
	var walk func(path string, b []byte)
	walk = func(path string, b []byte) {
		require.NoError(t, protofield.Each(b, func(f protofield.Field) error {
			at := fmt.Sprintf("%s/%d", path, f.Num)
			if messages[at] && f.Type == protowire.BytesType {
				walk(at, f.Bytes)
				return nil
			}
			out[at+":"+string(f.Raw)]++
			return nil
		}))
	}
	walk("", body[n:])
	return out
}

// TestEveryMessageOfARecordKeepsWhatItDoesNotKnow: on the way through the store and in a copy, which shares nothing with the original.
func TestEveryMessageOfARecordKeepsWhatItDoesNotKnow(t *testing.T) {
	r := ofALaterVersion(t, 60, []byte("later"))
	b, err := EncodeRecord(r)
	require.NoError(t, err)
	got, err := DecodeRecord("r", b)
	require.NoError(t, err)
	require.Equal(t, r, got)
	c := got.Clone()
	require.Equal(t, got, c)
	unknownsOf(t, reflect.ValueOf(c), func(_ string, unknown *[]byte) { (*unknown)[0]++ })
	c.Key.Key[0]++
	c.Garbage[0].Targets[0] = "other"
	require.Equal(t, r, got)
}

// TestAMessageInPiecesAddsUp: protobuf lets a message stand there in several pieces, whose fields belong together.
func TestAMessageInPiecesAddsUp(t *testing.T) {
	var p Placement
	whole := putBytes(nil, 1, []byte("t1"))
	whole = putBytes(whole, 4, putInt(putBytes(nil, 1, []byte("t2")), 70, 1))
	whole = putBytes(whole, 4, putInt(putInt(nil, 2, 5), 71, 2))
	require.NoError(t, protofield.Each(whole, p.field))
	require.Equal(t, &Move{Target: "t2", Generation: 5, Unknown: putInt(putInt(nil, 70, 1), 71, 2)}, p.Move)
}

// FuzzRecordOfALaterVersion: whatever a newer version writes into any message, a rewrite by this one loses no field.
func FuzzRecordOfALaterVersion(f *testing.F) {
	f.Add(uint8(60), []byte("later"))
	f.Add(uint8(30), []byte{})
	f.Fuzz(func(t *testing.T, num uint8, payload []byte) {
		later := protowire.Number(30 + num%60) // known ones are below
		if len(payload) > 1<<10 {
			return
		}
		stored, err := EncodeRecord(ofALaterVersion(t, later, payload))
		require.NoError(t, err)
		r, err := DecodeRecord("r", stored)
		require.NoError(t, err)
		again, err := EncodeRecord(r.Clone())
		require.NoError(t, err)
		require.Equal(t, fieldsOf(t, stored), fieldsOf(t, again))
	})
}

// TestANewerVersionsFieldsOutliveAnOlderWorker: repair, release, scrub and the janitor all rewrite the record.
func TestANewerVersionsFieldsOutliveAnOlderWorker(t *testing.T) {
	w, l := offloaded(t, 6, Geometry{2, 1}, ledgerSpec{sizes: even(3000, 100)})
	x := w.worker("r", nil)
	defer x.Close()
	r, v, err := w.records.Read(t.Context(), l.id)
	require.NoError(t, err)
	later := putInt(nil, 60, 1)
	r.Unknown = later
	for i := range r.Placement {
		r.Placement[i].Unknown = later
	}
	r.Stale = append(r.Stale, Stale{Attempt: AttemptID{9}, Shard: 1, Target: "t1", Generation: 3, Since: w.now().UnixMilli(), Unknown: later})
	r.Garbage = append(r.Garbage, Garbage{Attempt: AttemptID{8}, Targets: []string{"t1"}, Since: w.now().UnixMilli(), Unknown: later})
	_, err = w.records.Write(t.Context(), l.id, r, v, LedgerCond{})
	require.NoError(t, err)
	_, err = x.Repair(t.Context(), l.id, RepairOptions{Drain: r.Placement[0].Target})
	require.NoError(t, err)
	require.NoError(t, x.Release(t.Context(), l.id, true))
	_, err = x.Clean(t.Context())
	require.NoError(t, err)
	got := w.record(l.id)
	require.Equal(t, StateReleased, got.State)
	require.EqualValues(t, 1, got.Placement[0].Generation)
	require.Equal(t, later, got.Unknown)
	for i := range got.Placement {
		require.Equal(t, later, got.Placement[i].Unknown)
	}
	require.Equal(t, later, got.Stale[0].Unknown)
	require.NotZero(t, got.Garbage[0].Passes)
	require.Equal(t, later, got.Garbage[0].Unknown)
	w.requireReadable(l)
}
