package index

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/entrylog"
	"github.com/binderylog/bindery/internal/corrupt"
	"github.com/binderylog/bindery/internal/vfs"
	"github.com/binderylog/bindery/internal/vfs/memfs"
)

func FuzzRun(f *testing.F) {
	add := func(r entrylog.Run, prev int64) {
		key := runKey(r.Ledger, r.Last())
		f.Add(key[:], appendRun(nil, key[:], &r, prev))
	}
	add(run(1, 0, 128, 7, 4096, 1024), -1)
	add(run(1<<63-1, 1<<63-128, 128, 1<<32-1, 1<<40, 24), 5)
	add(entrylog.Run{Ledger: 3, First: 9, Log: 2, Offset: 9999, Count: 3, Sizes: []uint32{24, 5 << 20, 100}}, 8)
	f.Add([]byte("short"), []byte{1, 2, 3})
	f.Fuzz(func(t *testing.T, key, value []byte) {
		r, err := decodeRun(key, value)
		if err != nil {
			if len(key) != runKeySize || len(value) < crcSize {
				return
			}
			// The checksum keeps almost all inputs out; let the fields be fuzzed too.
			value = seal(key, bytes.Clone(value[:len(value)-crcSize]))
			if r, err = decodeRun(key, value); err != nil {
				return
			}
		}
		again := runKey(r.Ledger, r.Last())
		require.Equal(t, key, again[:])
		got, err := decodeRun(again[:], appendRun(nil, again[:], &r.Run, r.Prev))
		require.NoError(t, err)
		require.Equal(t, r, got)
	})
}

func FuzzLedgerRecord(f *testing.F) {
	for _, l := range []ledgerRecord{{last: -1, hasState: true}, {last: 0, runs: 1}, {last: 1<<63 - 1, runs: 1 << 40, hasState: true}} {
		key := ledgerKey(7)
		f.Add(key[:], l.encode(key[:]))
	}
	f.Fuzz(func(t *testing.T, key, value []byte) {
		l, err := decodeLedger(key, value)
		if err != nil && len(value) >= crcSize {
			l, err = decodeLedger(key, seal(key, bytes.Clone(value[:len(value)-crcSize])))
		}
		if err != nil {
			return
		}
		got, err := decodeLedger(key, l.encode(key))
		require.NoError(t, err)
		require.Equal(t, l, got)
	})
}

func FuzzStateAndLogRecord(f *testing.F) {
	key := ledgerKey(7)
	s := stateRecord{age{3, 4}, []byte("state")}
	f.Add(key[:], s.encode(key[:]))
	lk := logKey(9)
	l := logRecord{3, true}
	f.Add(lk[:], l.encode(lk[:]))
	f.Fuzz(func(t *testing.T, key, value []byte) {
		if len(value) >= crcSize {
			value = seal(key, bytes.Clone(value[:len(value)-crcSize]))
		}
		if s, err := decodeState(key, value); err == nil {
			require.Equal(t, value, s.encode(key))
		}
		if l, err := decodeLog(key, value); err == nil {
			require.Equal(t, value, l.encode(key))
		}
		_, _ = parseLedgerKey(key)
	})
}

// FuzzMemFiles opens arbitrary files as the twin's.
func FuzzMemFiles(f *testing.F) {
	fs := memfs.New("/data")
	x, err := OpenMem(fs, memPath, Options{})
	require.NoError(f, err)
	require.NoError(f, x.PutMeta(MetaValue{"a", []byte("b")}))
	require.NoError(f, x.Close())
	snapshot, err := vfs.ReadFile(fs, memPath)
	require.NoError(f, err)
	changes, err := vfs.ReadFile(fs, memPath+".log")
	require.NoError(f, err)
	f.Add(snapshot, changes)
	f.Add(frame(3, changes[memFrameHeader:]), []byte{})
	f.Fuzz(func(t *testing.T, snapshot, changes []byte) {
		fs := memfs.New("/data")
		require.NoError(t, vfs.WriteFileAtomic(fs, memPath, snapshot))
		require.NoError(t, vfs.WriteFileAtomic(fs, memPath+".log", changes))
		x, err := OpenMem(fs, memPath, Options{MustExist: true})
		if err != nil {
			require.True(t, corrupt.Is(err), "%v", err)
			return
		}
		_, _ = x.Ledgers(-1, 100)
		_, _ = x.Locate(1, 1)
		require.NoError(t, x.Close())
	})
}
