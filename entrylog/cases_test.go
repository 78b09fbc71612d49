package entrylog

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/corrupt"
	"github.com/binderylog/bindery/internal/vfs"
	"github.com/binderylog/bindery/internal/vfs/errorfs"
	"github.com/binderylog/bindery/internal/vfs/memfs"
)

// patch overwrites bytes of a file.
func patch(t *testing.T, fs vfs.FS, name string, off int64, b []byte) {
	t.Helper()
	f, err := fs.Open(name, vfs.Mode{Write: true})
	require.NoError(t, err)
	_, err = f.WriteAt(b, off)
	require.NoError(t, err)
	require.NoError(t, f.Sync())
	require.NoError(t, f.Close())
}

func truncate(t *testing.T, fs vfs.FS, name string, size int64) {
	t.Helper()
	f, err := fs.Open(name, vfs.Mode{Write: true})
	require.NoError(t, err)
	require.NoError(t, f.Truncate(size))
	require.NoError(t, f.Sync())
	require.NoError(t, f.Close())
}

func fileSize(t *testing.T, fs vfs.FS, name string) int64 {
	t.Helper()
	st, err := fs.Stat(name)
	require.NoError(t, err)
	return st.Size
}

func logPath(id LogID) string { return filepath.Join(testDir, id.String()+logSuffix) }

// TestC15WrongHeaderIsNotAnEmptyLog damages header, footer, and both, in the ways a crash or a disk may.
func TestC15WrongHeaderIsNotAnEmptyLog(t *testing.T) {
	clean := memfs.New(testDir)
	o := smallOptions()
	o.LogSize = 1 << 20
	s, _ := mustOpen(t, clean, o)
	m := newModel()
	fill(t, s, m, 6)
	unsealed := clean.CrashClone(1, 0)
	durable := s.Durable()
	require.NoError(t, s.Close())

	garbage := make([]byte, headerSize)
	for i := range garbage {
		garbage[i] = byte(i*7 + 3)
	}
	zero := make([]byte, headerSize)
	cases := map[string]func(fs vfs.FS){
		"zeroed header":  func(fs vfs.FS) { patch(t, fs, logPath(1), 0, zero) },
		"garbage header": func(fs vfs.FS) { patch(t, fs, logPath(1), 0, garbage) },
	}
	for name, damage := range cases {
		for kind, base := range map[string]*memfs.FS{"sealed": clean, "unsealed": unsealed} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				fs := base.Clone()
				damage(fs)
				o := o
				o.Durable = durable
				s, r := mustOpen(t, fs, o)
				require.Empty(t, r.Damage)
				require.Len(t, s.Logs(), 1)
				c, err := readAll(s)
				require.NoError(t, err)
				require.Empty(t, c.damage)
				m.holds(t, s, c, name)
				require.NoError(t, s.Close())
				if kind == "unsealed" { // sealing has written the header again
					b, err := vfs.ReadFile(fs, logPath(1))
					require.NoError(t, err)
					got, err := decodeHeader(b)
					require.NoError(t, err)
					require.Equal(t, LogID(1), got.id)
				}
			})
		}
	}
	t.Run("footer cut off", func(t *testing.T) {
		full := fileSize(t, clean, logPath(1))
		for size := full - blockSize; size >= 0; size -= blockSize {
			fs := clean.Clone()
			truncate(t, fs, logPath(1), size)
			o := o
			o.Durable = durable
			s, r := mustOpen(t, fs, o)
			c, err := readAll(s)
			if size >= durable.Offset {
				require.NoError(t, err)
				require.Empty(t, r.Damage)
				m.holds(t, s, c, fmt.Sprint("cut at ", size))
			} else {
				require.NotEmpty(t, r.Damage, "cut at %d", size)
				require.True(t, r.Damage[0].Runs && r.Damage[0].States)
				require.Equal(t, LogID(1), r.Damage[0].Log)
			}
			require.NoError(t, s.Close())
		}
	})
	t.Run("log file gone", func(t *testing.T) {
		fs := clean.Clone()
		require.NoError(t, fs.Remove(logPath(1)))
		o := o
		o.Durable = durable
		s, r := mustOpen(t, fs, o)
		require.Len(t, r.Damage, 1)
		require.NoError(t, s.Close())
	})
	t.Run("all of it garbage", func(t *testing.T) {
		fs := clean.Clone()
		for off := int64(0); off < fileSize(t, fs, logPath(1)); off += headerSize {
			patch(t, fs, logPath(1), off, garbage)
		}
		s, r := mustOpen(t, fs, o)
		require.Len(t, r.Damage, 1)
		require.True(t, s.Logs()[0].Unreadable)
		_, err := s.Footer(1)
		require.True(t, corrupt.Is(err), "%v", err)
		_, err = s.Read(Location{Log: 1, Offset: headerSize, Size: 100}, nil)
		require.True(t, corrupt.Is(err), "%v", err)
		require.NoError(t, s.Close())
		_, err = fs.Stat(logPath(1))
		require.NoError(t, err, "an unreadable log stays")
	})
	t.Run("log that vanishes while open", func(t *testing.T) {
		fs := clean.Clone()
		s, _ := mustOpen(t, fs, o)
		require.NoError(t, fs.Remove(logPath(1)))
		_, err := s.Read(m.at[entryID{1, 0}], nil)
		require.True(t, corrupt.Is(err), "%v", err)
		require.NoError(t, s.Close())
	})
}

// TestC18DeleteFails keeps a log pending until its file can be deleted.
func TestC18DeleteFails(t *testing.T) {
	disk := memfs.New(testDir)
	blocked := errorfs.NewSwitch(errorfs.OnPath(logPath(1), errorfs.From(errorfs.Remove, 1, syscall.EPERM)))
	fs := errorfs.Wrap(disk, blocked)
	s, _ := mustOpen(t, fs, smallOptions())
	m := newModel()
	fill(t, s, m, 20)
	require.NoError(t, s.Roll())
	s.wg.Wait()
	old := m.at[entryID{1, 0}]
	require.Equal(t, LogID(1), old.Log)
	size := s.Logs()[0].Size

	blocked.Set(true)
	require.ErrorIs(t, s.Remove(1), syscall.EPERM)
	for range 3 {
		left, err := s.RetryRemovals()
		require.ErrorIs(t, err, syscall.EPERM)
		require.Equal(t, 1, left)
		_, err = s.Read(old, nil)
		require.ErrorIs(t, err, ErrNoLog)
		require.NotEqual(t, LogID(1), s.Logs()[0].ID)
		require.Equal(t, size, s.Stats().PendingBytes)
	}
	blocked.Set(false)
	left, err := s.RetryRemovals()
	require.NoError(t, err)
	require.Zero(t, left)
	require.Empty(t, s.Pending())
	require.ErrorIs(t, s.Remove(1), ErrNoLog)
	_, err = disk.Stat(logPath(1))
	require.Error(t, err)
	require.NoError(t, s.Close())
}

// TestC18ReaderKeepsTheFile deletes a log under a reader: the reader ends well, the file goes after it.
func TestC18ReaderKeepsTheFile(t *testing.T) {
	disk := memfs.New(testDir)
	s, _ := mustOpen(t, disk, smallOptions())
	m := newModel()
	fill(t, s, m, 20)
	s.wg.Wait()
	entries, removed := 0, false
	require.NoError(t, s.Scan(context.Background(), 1, func(r Record, err error) error {
		require.NoError(t, err)
		if !removed {
			removed = true
			require.NoError(t, s.Remove(1))
			require.Len(t, s.Pending(), 1)
			_, err := s.Read(r.Location, nil)
			require.ErrorIs(t, err, ErrNoLog)
		}
		entries++
		return nil
	}))
	require.Greater(t, entries, 10)
	require.Empty(t, s.Pending())
	_, err := disk.Stat(logPath(1))
	require.Error(t, err)
	require.NoError(t, s.Close())
}

// TestC06FailedSyncEndsTheLog never writes to a log again whose sync failed; the flush gets through in a new one.
func TestC06FailedSyncEndsTheLog(t *testing.T) {
	disk := memfs.New(testDir)
	bad := errorfs.NewSwitch(errorfs.OnPath(logPath(1), errorfs.Nth(errorfs.Sync, 1, syscall.EIO)))
	fs := errorfs.Wrap(disk, bad)
	var sealed []LogInfo
	o := smallOptions()
	o.OnSealed = func(i LogInfo) { sealed = append(sealed, i) }
	s, _ := mustOpen(t, fs, o)
	m := newModel()
	h := &history{model: m}
	require.NoError(t, h.flush(s, h.batch(0), 1))

	bad.Set(true)
	err := m.write(s, h.batch(1))
	require.ErrorIs(t, err, ErrFailed)
	require.ErrorIs(t, err, syscall.EIO)
	require.NoError(t, disk.ForgetDirty(logPath(1))) // as kernels do
	_, err = s.Append(makeBody(1, 1, 100, 0))
	require.ErrorIs(t, err, ErrFailed, "until Abort nothing goes on")
	require.ErrorIs(t, s.Checkpoint(nil, nil), ErrFailed)
	writes := fs.Count(errorfs.Write)
	require.NoError(t, s.Abort())
	s.wg.Wait()
	require.Equal(t, writes, fs.Count(errorfs.Write), "no footer for a failed log")
	require.Len(t, sealed, 1)
	require.True(t, sealed[0].Failed)
	require.False(t, sealed[0].Sealed)

	require.NoError(t, h.flush(s, h.batch(1), 1))
	require.Equal(t, LogID(2), s.Durable().Log)
	f, err := s.Footer(1)
	require.NoError(t, err)
	require.Equal(t, FromCheckpoints, f.Source)
	require.Equal(t, int64(9), f.Entries)
	durable := s.Durable()
	after := disk.CrashClone(7, 0)
	require.NoError(t, s.Close())
	o.Durable = durable
	s, r := mustOpen(t, after, o)
	require.Empty(t, r.Damage)
	c, err := readAll(s)
	require.NoError(t, err)
	m.holds(t, s, c, "after power loss")
	require.NoError(t, s.Close())
}

// TestC25DiskFullDuringFlush fills the disk at every point of a flush; once there is space the flush gets through, and
// what was durable stays.
func TestC25DiskFullDuringFlush(t *testing.T) {
	for free := int64(0); free < 40<<10; free += 4 << 10 {
		disk := memfs.New(testDir)
		o := sweepOptions()
		s, _ := mustOpen(t, disk, o)
		h := newHistory()
		require.NoError(t, h.flush(s, h.batch(0), 1))
		u, err := disk.Usage("/")
		require.NoError(t, err)
		used := u.Total - u.Available
		disk.SetCapacity(used + free)
		failed := 0
		for n := 1; n < 6; n++ {
			err := h.flush(s, h.batch(n), 1)
			if err == nil {
				continue
			}
			require.ErrorIs(t, err, ErrNoSpace)
			require.NotErrorIs(t, err, ErrFailed)
			failed++
			// Killed now, everything that was promised is there; and a start needs no space.
			h.verify(t, disk.CrashClone(uint64(n), 0.5), fmt.Sprintf("%d bytes free, flush %d", free, n))
			// What the failed try had reserved comes back soon, and may be enough.
			if err := h.flush(s, h.batch(n), 2); err != nil {
				require.ErrorIs(t, err, ErrNoSpace)
				disk.SetCapacity(0)
				require.NoError(t, h.flush(s, h.batch(n), 1))
			}
		}
		if free < 20<<10 {
			require.Positive(t, failed)
		}
		require.NoError(t, s.Close())
		h.verify(t, disk.CrashClone(1, 0), fmt.Sprintf("%d bytes free", free))
	}
}

// TestC53EmptyPayload stores bodies that hold nothing but ids and LAC, first, in the middle and last.
func TestC53EmptyPayload(t *testing.T) {
	disk := memfs.New(testDir)
	s, _ := mustOpen(t, disk, smallOptions())
	m := newModel()
	var b batch
	for e := range int64(9) {
		size := MinBody
		if e%4 != 0 {
			size = 100
		}
		b.add(1, e, size, 0)
	}
	require.NoError(t, m.write(s, &b))
	for _, bad := range [][]byte{nil, make([]byte, MinBody-1), make([]byte, MaxBody+1)} {
		_, err := s.Append(bad)
		require.ErrorIs(t, err, ErrBody)
	}
	require.NoError(t, s.Checkpoint(nil, nil))
	require.NoError(t, s.Roll())
	s.wg.Wait()
	c, err := readAll(s)
	require.NoError(t, err)
	require.Len(t, c.at, 9)
	m.holds(t, s, c, "empty payloads")
	require.NoError(t, s.Close())
}

// TestLargestBody goes through all buffers and comes back.
func TestLargestBody(t *testing.T) {
	disk := memfs.New(testDir)
	s, _ := mustOpen(t, disk, smallOptions())
	m := newModel()
	var b batch
	b.add(1, 0, MaxBody, 0)
	b.add(1, 1, 100, 0)
	b.add(1, 2, MaxBody-1, 0)
	require.NoError(t, m.write(s, &b))
	for id, loc := range m.at {
		got, err := s.Read(loc, nil)
		require.NoError(t, err)
		require.Equal(t, m.entries[id], got)
	}
	require.NoError(t, s.Close())
}

// TestIDsAreNeverUsedTwice removes the newest logs and restarts.
func TestIDsAreNeverUsedTwice(t *testing.T) {
	disk := memfs.New(testDir)
	used := map[LogID]bool{}
	for round := range 4 {
		s, _ := mustOpen(t, disk, smallOptions())
		h := newHistory()
		require.NoError(t, h.flush(s, h.batch(round), 1))
		id := s.Durable().Log
		require.False(t, used[id], "round %d: log %s", round, id)
		used[id] = true
		o := smallOptions()
		o.Durable = s.Durable()
		require.NoError(t, s.Close())
		s, r := mustOpen(t, disk, o)
		require.Empty(t, r.Damage)
		require.NoError(t, s.Remove(id))
		require.NoError(t, s.Close())
		s, r = mustOpen(t, disk, o) // the mark still names the log: its removal is remembered
		require.Empty(t, r.Damage)
		require.Empty(t, s.Logs())
		require.NoError(t, s.Close())
	}
	patch(t, disk, filepath.Join(testDir, removedName), 12, []byte{0xff})
	patch(t, disk, filepath.Join(testDir, removedName), removedSlot+12, []byte{0xff})
	o := smallOptions()
	o.MinLog = 3
	s, _ := mustOpen(t, disk, o)
	h := newHistory()
	require.NoError(t, h.flush(s, h.batch(0), 1))
	require.Greater(t, s.Durable().Log, LogID(1000))
	require.NoError(t, s.Close())
}

// TestNewerFormatIsRefused leaves the log of a newer program alone.
func TestNewerFormatIsRefused(t *testing.T) {
	disk := memfs.New(testDir)
	s, _ := mustOpen(t, disk, smallOptions())
	h := newHistory()
	require.NoError(t, h.flush(s, h.batch(0), 1))
	require.NoError(t, s.Close())
	f, err := disk.Open(logPath(1), vfs.Mode{})
	require.NoError(t, err)
	head := make([]byte, headerSize)
	_, err = f.ReadAt(head, 0)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	binary.LittleEndian.PutUint16(head[8:], Version+1)
	binary.LittleEndian.PutUint32(head[headerSize-4:], crc32.Checksum(head[:headerSize-4], castagnoli))
	patch(t, disk, logPath(1), 0, head)
	before := fileSize(t, disk, logPath(1))
	_, _, err = Open(disk, testDir, smallOptions())
	require.ErrorIs(t, err, ErrVersion)
	require.Equal(t, before, fileSize(t, disk, logPath(1)))
}

// TestReserve is the ballast of C26.
func TestReserve(t *testing.T) {
	disk := memfs.New(testDir)
	disk.SetCapacity(1 << 20)
	require.NoError(t, Reserve(disk, testDir, 512<<10))
	require.NoError(t, Reserve(disk, testDir, 512<<10))
	n, err := ReserveSize(disk, testDir)
	require.NoError(t, err)
	require.Equal(t, int64(512<<10), n)
	require.ErrorIs(t, Reserve(disk, testDir, 2<<20), ErrNoSpace)
	n, err = ReserveSize(disk, testDir)
	require.NoError(t, err)
	require.Equal(t, int64(512<<10), n)

	// A flush that does not fit gets through once the reserve is released.
	s, _ := mustOpen(t, disk, smallOptions())
	m := newModel()
	var b batch
	for e := range int64(40) {
		b.add(1, e, 18<<10, 0)
	}
	require.ErrorIs(t, m.write(s, &b), ErrNoSpace)
	require.NoError(t, s.Abort())
	s.wg.Wait() // what the attempt had taken is given back
	n, err = ReleaseReserve(disk, testDir)
	require.NoError(t, err)
	require.Equal(t, int64(512<<10), n)
	require.NoError(t, m.write(s, &b))
	require.NoError(t, s.Close())
	n, err = ReleaseReserve(disk, testDir)
	require.NoError(t, err)
	require.Zero(t, n)
}

// TestPrecedenceOfCompaction copies an entry that is added again meanwhile: the copy must not win.
func TestPrecedenceOfCompaction(t *testing.T) {
	disk := memfs.New(testDir)
	s, _ := mustOpen(t, disk, smallOptions())
	m := newModel()
	h := &history{model: m, gone: map[LogID]bool{}, moved: map[entryID]bool{}}
	var first batch
	first.add(1, 0, 100, 1)
	first.state(1, "old")
	require.NoError(t, m.write(s, &first))
	require.NoError(t, s.Roll())
	s.wg.Wait()

	// The new log exists, then the compaction's gets a higher id, then the entry is added again to the lower one.
	var other batch
	other.add(2, 0, 100, 1)
	require.NoError(t, m.write(s, &other))
	require.NoError(t, h.compact(s))
	var again batch
	again.add(1, 0, 100, 2)
	again.state(1, "new")
	require.NoError(t, m.write(s, &again))
	require.NoError(t, s.Close())

	s, _ = mustOpen(t, disk, smallOptions())
	infos := s.Logs()
	require.Len(t, infos, 2)
	require.Equal(t, LogID(3), infos[1].ID)
	require.True(t, infos[1].Compaction)
	require.Equal(t, LogID(1), infos[1].Precedence)
	require.True(t, infos[1].Before(infos[0]))
	c, err := readAll(s)
	require.NoError(t, err)
	m.holds(t, s, c, "rebuilt")
	require.NoError(t, s.Close())
}

// TestCheckpointRefusesWhatWasNotAppended catches a caller whose runs do not describe what it wrote.
func TestCheckpointRefusesWhatWasNotAppended(t *testing.T) {
	disk := memfs.New(testDir)
	s, _ := mustOpen(t, disk, smallOptions())
	loc, err := s.Append(makeBody(1, 0, 100, 0))
	require.NoError(t, err)
	for name, runs := range map[string][]Run{
		"none":         nil,
		"another log":  {{Ledger: 1, Log: 9, Offset: loc.Offset, Count: 1, Sizes: []uint32{100}}},
		"another size": {{Ledger: 1, Log: loc.Log, Offset: loc.Offset, Count: 1, Sizes: []uint32{99}}},
		"too many":     {{Ledger: 1, Log: loc.Log, Offset: loc.Offset, Count: 2, Sizes: []uint32{100}}},
		"negative id":  {{Ledger: -1, Log: loc.Log, Offset: loc.Offset, Count: 1, Sizes: []uint32{100}}},
	} {
		require.Error(t, s.Checkpoint(runs, nil), name)
	}
	good := []Run{{Ledger: 1, Log: loc.Log, Offset: loc.Offset, Count: 1, Sizes: []uint32{100}}}
	for name, states := range map[string][]LedgerState{
		"twice":    {{Ledger: 1}, {Ledger: 1}},
		"negative": {{Ledger: -1}},
		"too long": {{Ledger: 1, Data: make([]byte, MaxState+1)}},
	} {
		require.Error(t, s.Checkpoint(good, states), name)
	}
	require.NoError(t, s.Checkpoint(good, []LedgerState{{Ledger: 1, Data: make([]byte, MaxState)}}))
	require.NoError(t, s.Close())
	_, err = s.Append(makeBody(1, 1, 100, 0))
	require.ErrorIs(t, err, ErrClosed)
	_, err = s.Read(loc, nil)
	require.ErrorIs(t, err, ErrClosed)
}

// TestReadsBesideWrites reads what is durable while the flusher goes on, logs roll, and old ones are removed.
func TestReadsBesideWrites(t *testing.T) {
	disk := memfs.New(testDir)
	s, _ := mustOpen(t, disk, sweepOptions())
	var mu sync.Mutex
	var known []Location
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			var buf []byte
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				mu.Lock()
				if len(known) == 0 {
					mu.Unlock()
					continue
				}
				loc := known[i*7%len(known)]
				mu.Unlock()
				body, err := s.Read(loc, buf)
				if errors.Is(err, ErrNoLog) {
					continue
				}
				if err != nil {
					t.Errorf("read %s: %v", loc, err)
					return
				}
				ledger, entry := IDs(body)
				if want := makeBody(ledger, entry, len(body), 0); string(want) != string(body) {
					t.Errorf("read %s: wrong bytes", loc)
				}
				buf = body
				if _, err := s.ReadRange(loc.Log, loc.Offset, 4096, nil); err != nil && !errors.Is(err, ErrNoLog) {
					t.Errorf("read range %s: %v", loc, err)
				}
			}
		})
	}
	m := newModel()
	for n := range int64(60) {
		var b batch
		for e := range int64(20) {
			b.add(n%3, n*20+e, 100+int(e)*20, 0)
		}
		require.NoError(t, m.write(s, &b))
		mu.Lock()
		for _, e := range b.bodies {
			known = append(known, m.at[e.id])
		}
		mu.Unlock()
		if logs := s.Logs(); len(logs) > 6 {
			err := s.Remove(logs[0].ID)
			if !errors.Is(err, ErrNotFinal) {
				require.NoError(t, err)
			}
		}
	}
	close(stop)
	wg.Wait()
	require.Empty(t, s.Pending())
	require.NoError(t, s.Close())
}

// TestReadRange walks a log by ranges, from the start of a record to where the last whole one ends.
func TestReadRange(t *testing.T) {
	disk := memfs.New(testDir)
	s, _ := mustOpen(t, disk, smallOptions())
	m := newModel()
	fill(t, s, m, 3)
	id := s.Durable().Log
	seen := 0
	off := int64(headerSize)
	var buf []byte
	for off < s.Durable().Offset {
		c, err := s.ReadRange(id, off, 3000, buf)
		require.NoError(t, err)
		buf = c.Buffer
		next := off
		for r, err := range c.Records() {
			require.NoError(t, err)
			require.Equal(t, m.entries[entryID{r.Ledger, r.Entry}], r.Body)
			require.Equal(t, m.at[entryID{r.Ledger, r.Entry}], r.Location)
			next = r.Location.Offset + RecordHeaderSize + int64(r.Location.Size)
			seen++
		}
		if next == off { // a table larger than the range: go to the next checkpoint
			next = alignUp(off + 1)
		}
		off = next
	}
	require.Equal(t, len(m.entries), seen)
	_, err := s.ReadRange(id, s.Durable().Offset+1, 10, nil)
	require.Error(t, err)
	_, err = s.ReadRange(99, headerSize, 10, nil)
	require.ErrorIs(t, err, ErrNoLog)
	require.NoError(t, s.Close())
}

// TestLogAndCompactionBeginAtOnce gives each its own id.
func TestLogAndCompactionBeginAtOnce(t *testing.T) {
	disk := memfs.New(testDir)
	s, _ := mustOpen(t, disk, sweepOptions())
	m := newModel()
	h := &history{model: m}
	require.NoError(t, h.flush(s, h.batch(0), 1))
	require.NoError(t, s.Roll())
	s.wg.Wait()
	var wg sync.WaitGroup
	wg.Go(func() {
		for range 20 {
			w, err := s.NewCompactionWriter(1)
			if err != nil {
				t.Errorf("compaction: %v", err)
				return
			}
			if err := w.Abort(); err != nil {
				t.Errorf("abort: %v", err)
			}
		}
	})
	for n := range 20 {
		require.NoError(t, h.flush(s, h.batch(n), 1))
		require.NoError(t, s.Roll())
	}
	wg.Wait()
	require.NoError(t, s.Close())
}

// TestMisplacedBlocks lets the disk put a block of a log in another place, and a block of another log with the same layout in
// this one: neither is taken for what should lie there.
func TestMisplacedBlocks(t *testing.T) {
	disk := memfs.New(testDir)
	o := smallOptions()
	o.LogSize = headerSize + 1
	s, _ := mustOpen(t, disk, o)
	m := newModel()
	for n := range int64(2) { // two logs that differ in nothing but ids
		var b batch
		for e := range int64(64) {
			b.add(n, e, 512-RecordHeaderSize, 0)
		}
		require.NoError(t, m.write(s, &b))
	}
	require.NoError(t, s.Close())
	read := func(log LogID, block int64) []byte {
		b, err := vfs.ReadFile(disk, logPath(log))
		require.NoError(t, err)
		return b[block*blockSize : (block+1)*blockSize]
	}
	for name, block := range map[string][]byte{"same log": read(1, 3), "other log": read(2, 2)} {
		fs := disk.Clone()
		patch(t, fs, logPath(1), 2*blockSize, block)
		s, _ := mustOpen(t, fs, o)
		bad := 0
		for id, want := range m.entries {
			got, err := s.Read(m.at[id], nil)
			if err != nil {
				require.True(t, corrupt.Is(err), "%s: %v", name, err)
				bad++
				continue
			}
			require.Equal(t, want, got, name)
		}
		require.Equal(t, 8, bad, name)
		require.NoError(t, s.Close())
	}
}

// TestDamageFoundWhileSealing damages a run table and an entry of one checkpoint before the log is sealed: no footer may hide
// that, neither now nor after a restart.
func TestDamageFoundWhileSealing(t *testing.T) {
	disk := memfs.New(testDir)
	o := smallOptions()
	s, _ := mustOpen(t, disk, o)
	m := newModel()
	h := &history{model: m}
	for n := range 3 {
		require.NoError(t, h.flush(s, h.batch(n), 1))
	}
	second := s.w.commits[1]
	flip(t, disk, logPath(1), (second.tables+20)*8)
	hurt := m.at[entryID{2, 4}]
	flip(t, disk, logPath(1), (hurt.Offset+1)*8) // its length
	require.NoError(t, s.Roll())
	s.wg.Wait()
	check := func(s *Store) {
		info, err := s.Log(1)
		require.NoError(t, err)
		require.False(t, info.Sealed)
		f, err := s.Footer(1)
		require.NoError(t, err)
		require.Equal(t, FromCheckpoints, f.Source)
		require.Len(t, f.Damage, 1)
		require.True(t, f.Damage[0].Runs)
		require.Equal(t, hurt.Offset, f.Damage[0].Err.Offset)
		found := 0
		for r, err := range f.Runs() {
			require.NoError(t, err)
			found += int(r.Count)
		}
		require.Greater(t, found, 20)
		require.Less(t, found, 29)
	}
	check(s)
	o.Durable = s.Durable()
	require.NoError(t, s.Close())
	s, r := mustOpen(t, disk, o)
	require.Len(t, r.Damage, 1)
	check(s)
	require.NoError(t, s.Close())
}
