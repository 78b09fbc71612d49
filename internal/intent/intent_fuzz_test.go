package intent

import (
	"bytes"
	"testing"

	"github.com/binderylog/bindery/internal/vfs"
	"github.com/binderylog/bindery/internal/vfs/memfs"
)

// seedFile is a well-formed file of generation 1.
func seedFile() []byte {
	var b []byte
	for i, r := range []record{
		{kind: kindHead, id: 5, data: headData(1)},
		{kind: kindIntent, durable: 1, id: 5, data: []byte("compact log 7 into 9")},
		{kind: kindSynced, durable: 2},
		{kind: kindIntent, durable: 2, id: 6, data: []byte("delete log 7")},
		{kind: kindDone, durable: 2, id: 5},
		{kind: kindSynced, durable: 5},
	} {
		r.generation, r.index = 1, uint64(i+1)
		b = appendFrame(b, &r)
	}
	return b
}

func FuzzDecodeRecord(f *testing.F) {
	file := seedFile()
	f.Add(file[1:])
	f.Add(file[62:])
	f.Add([]byte(magic))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		r, n, err := decodeRecord(b)
		if err != nil {
			return
		}
		if again := appendRecord(nil, &r); !bytes.Equal(again, b[:n]) {
			t.Fatalf("decodes and encodes to other bytes:\n%x\n%x", b[:n], again)
		}
	})
}

// FuzzOpen opens any bytes as a log's file: it fails, or gives a log that works and opens again to the same.
func FuzzOpen(f *testing.F) {
	file := seedFile()
	f.Add(file, false)
	f.Add(file[:len(file)-1], true)
	flipped := bytes.Clone(file)
	flipped[80] ^= 1
	f.Add(flipped, true)
	f.Add(append(bytes.Clone(file), make([]byte, 100)...), false)
	f.Add([]byte{}, true)
	f.Fuzz(func(t *testing.T, b []byte, salvage bool) {
		fsys := memfs.New("/i/00000001")
		if err := vfs.WriteFileAtomic(fsys, "/i/00000001/"+fileName, b); err != nil {
			t.Fatal(err)
		}
		l, err := OpenVFS(fsys, "/i", Options{Salvage: salvage})
		if err != nil {
			if salvage && scan("", 1, b).newer == nil {
				t.Fatalf("salvage fails: %v", err)
			}
			return
		}
		before := texts(l)
		id, err := l.Append(t.Context(), []byte("x"))
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Done(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		l, err = OpenVFS(fsys, "/i", Options{})
		if err != nil {
			t.Fatal(err)
		}
		after := texts(l)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if len(before) != len(after) {
			t.Fatalf("%q, after opening again %q", before, after)
		}
	})
}
