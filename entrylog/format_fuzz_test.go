package entrylog

import (
	"bytes"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/corrupt"
	"github.com/binderylog/bindery/internal/vfs"
	"github.com/binderylog/bindery/internal/vfs/memfs"
)

func testMeta() meta {
	return meta{id: 7, precedence: 5, flags: flagCompaction, salt: 0x0123456789abcdef, created: 1700000000000, prevLog: 3, prevEnd: 65536}
}

func FuzzHeader(f *testing.F) {
	m := testMeta()
	head := make([]byte, headerSize)
	encodeHeader(head, &m)
	f.Add(head)
	f.Add(head[:100])
	f.Add(make([]byte, headerSize))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decodeHeader(b)
		if err != nil {
			return
		}
		again := make([]byte, headerSize)
		encodeHeader(again, &m)
		got, err := decodeHeader(again)
		require.NoError(t, err)
		require.Equal(t, m, got)
	})
}

func FuzzRecord(f *testing.F) {
	for _, kind := range []byte{kindEntry, kindPad, kindRuns, kindStates, kindMap, kindCommit, kindTrailer, 0} {
		body := makeBody(1, 2, 100, 3)
		rec := make([]byte, RecordHeaderSize, RecordHeaderSize+len(body))
		putRecordHeader(rec, kind, body, 99)
		f.Add(append(rec, body...), uint32(99))
	}
	f.Add([]byte{kindEntry, 0xff, 0xff, 0xff, 1, 2, 3, 4}, uint32(0))
	f.Fuzz(func(t *testing.T, b []byte, seed uint32) {
		kind, body, err := parseRecord(b, seed)
		if err != nil {
			return
		}
		require.LessOrEqual(t, len(body), maxLen(kind))
		rec := make([]byte, RecordHeaderSize)
		putRecordHeader(rec, kind, body, seed)
		require.Equal(t, b[:RecordHeaderSize], rec)
	})
}

func FuzzCommit(f *testing.F) {
	c := commit{meta: testMeta(), off: 16384 - commitSize, seq: 2, prev: 8192 - commitSize, start: 8192, tables: 8192 + 132, statesAt: 9000, entries: 1, bytes: 132, runs: 1, states: 2}
	rec := make([]byte, commitSize)
	encodeCommit(rec[RecordHeaderSize:], &c)
	putRecordHeader(rec, kindCommit, rec[RecordHeaderSize:], c.seed(c.off))
	f.Add(rec, c.off)
	f.Add(rec, int64(0))
	f.Add(rec[:50], c.off)
	f.Fuzz(func(t *testing.T, b []byte, off int64) {
		c, err := decodeCommit(b, off)
		if err != nil {
			return
		}
		again := make([]byte, commitSize)
		encodeCommit(again[RecordHeaderSize:], c)
		putRecordHeader(again, kindCommit, again[RecordHeaderSize:], c.seed(off))
		got, err := decodeCommit(again, off)
		require.NoError(t, err)
		require.Equal(t, c, got)
	})
}

func FuzzTrailer(f *testing.F) {
	tr := trailer{
		meta: testMeta(), off: 20480 - trailerSize, sealed: 1700000000001, dataEnd: 16384, lastCommit: 16384 - commitSize, checkpoints: 2, entries: 3, bytes: 400,
		runs: section{16384, 16500, 1, 2}, states: section{16500, 16600, 1, 1}, ledgers: section{16600, 16700, 1, 1},
	}
	rec := make([]byte, trailerSize)
	encodeTrailer(rec[RecordHeaderSize:], &tr)
	putRecordHeader(rec, kindTrailer, rec[RecordHeaderSize:], tr.seed(tr.off))
	f.Add(rec, tr.off)
	f.Add(rec, int64(-1))
	f.Add(rec[:50], tr.off)
	f.Fuzz(func(t *testing.T, b []byte, off int64) {
		tr, err := decodeTrailer(b, off)
		if err != nil {
			return
		}
		again := make([]byte, trailerSize)
		encodeTrailer(again[RecordHeaderSize:], tr)
		putRecordHeader(again, kindTrailer, again[RecordHeaderSize:], tr.seed(off))
		got, err := decodeTrailer(again, off)
		require.NoError(t, err)
		require.Equal(t, tr, got)
	})
}

// chunkOf encodes rows into one chunk.
func chunkOf(t testing.TB, kind byte, rows func(*tableWriter) error) []byte {
	var chunk []byte
	w := tableWriter{kind: kind, emit: func(_ byte, b []byte) error {
		chunk = bytes.Clone(b)
		return nil
	}}
	require.NoError(t, rows(&w))
	require.NoError(t, w.close())
	return chunk
}

func FuzzRunTable(f *testing.F) {
	runs := []Run{
		{Ledger: 0, First: 0, Log: 1, Offset: 4096, Count: 8000, Sizes: []uint32{1024}},
		{Ledger: 0, First: 9000, Log: 1, Offset: 9 << 20, Count: 2, Sizes: []uint32{24, 5 << 20}},
		{Ledger: 1<<63 - 1, First: 1<<63 - 2, Log: 1, Offset: 5000, Count: 1, Sizes: []uint32{100}},
		{Ledger: 1<<63 - 1, First: 1<<63 - 1, Log: 1, Offset: 6000, Count: 1, Sizes: []uint32{100}},
	}
	f.Add(chunkOf(f, kindRuns, func(w *tableWriter) error {
		for i := range runs {
			if err := w.run(&runs[i]); err != nil {
				return err
			}
		}
		return nil
	}))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		runs, err := decodeRuns(nil, 1, b)
		if err != nil || len(b) >= chunkTarget {
			return
		}
		for i := 1; i < len(runs); i++ {
			require.GreaterOrEqual(t, runs[i].Ledger, runs[i-1].Ledger)
		}
		again := chunkOf(t, kindRuns, func(w *tableWriter) error {
			for i := range runs {
				if err := w.run(&runs[i]); err != nil {
					return err
				}
			}
			return nil
		})
		got, err := decodeRuns(nil, 1, again)
		require.NoError(t, err)
		require.Equal(t, runs, got)
	})
}

func FuzzStateTable(f *testing.F) {
	f.Add(chunkOf(f, kindStates, func(w *tableWriter) error {
		return errors.Join(w.state(&LedgerState{0, nil}), w.state(&LedgerState{5, []byte("x")}), w.state(&LedgerState{1<<63 - 1, make([]byte, 300)}))
	}))
	f.Fuzz(func(t *testing.T, b []byte) {
		states, err := decodeStates(nil, b)
		if err != nil || len(b) >= chunkTarget {
			return
		}
		again := chunkOf(t, kindStates, func(w *tableWriter) error {
			for i := range states {
				if err := w.state(&states[i]); err != nil {
					return err
				}
			}
			return nil
		})
		got, err := decodeStates(nil, again)
		require.NoError(t, err)
		require.Len(t, got, len(states))
	})
}

func FuzzLedgerMap(f *testing.F) {
	f.Add(chunkOf(f, kindMap, func(w *tableWriter) error {
		return errors.Join(w.ledgerBytes(0, 1), w.ledgerBytes(7, 1<<40), w.ledgerBytes(1<<63-1, 3))
	}))
	f.Fuzz(func(t *testing.T, b []byte) {
		_ = decodeMap(b, func(ledger, n int64) {
			require.GreaterOrEqual(t, ledger, int64(0))
			require.GreaterOrEqual(t, n, int64(0))
		})
	})
}

func FuzzRemoved(f *testing.F) {
	f.Add(removed{9, 8, 7}.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, err := decodeRemoved(b); err == nil {
			require.Equal(t, b[:removedSize], r.encode())
		}
	})
}

// FuzzLogFile opens arbitrary files: nothing may panic, hang, or be believed without a checksum.
func FuzzLogFile(f *testing.F) {
	fs := memfs.New(testDir)
	s, _, err := Open(fs, testDir, sweepOptions())
	require.NoError(f, err)
	h := newHistory()
	for n := range 2 {
		require.NoError(f, h.flush(s, h.batch(n), 1))
	}
	require.NoError(f, s.Close())
	whole, err := vfs.ReadFile(fs, logPath(1))
	require.NoError(f, err)
	f.Add(whole, int64(0))
	f.Add(whole[:len(whole)-blockSize], int64(12000))
	f.Add(whole[:headerSize+100], int64(headerSize))
	f.Fuzz(func(t *testing.T, b []byte, synced int64) {
		if len(b) > 1<<20 {
			return
		}
		fs := memfs.New(testDir)
		file, err := fs.Open(logPath(1), vfs.Mode{Write: true, Create: true})
		require.NoError(t, err)
		_, err = file.WriteAt(b, 0)
		require.NoError(t, err)
		require.NoError(t, file.Close())
		o := sweepOptions()
		o.Durable = Position{1, max(0, synced)}
		s, r, err := Open(fs, testDir, o)
		if err != nil {
			require.True(t, corrupt.Is(err) || errors.Is(err, ErrVersion), "%v", err)
			return
		}
		for _, info := range s.Logs() {
			ft, err := s.Footer(info.ID)
			if err != nil {
				require.True(t, corrupt.Is(err), "%v", err)
				continue
			}
			for run, err := range ft.Runs() {
				require.NoError(t, err)
				require.NoError(t, run.Check())
			}
		}
		if len(b) <= headerSize && synced > headerSize {
			require.NotEmpty(t, r.Damage)
		}
		require.NoError(t, s.Close())
	})
}
