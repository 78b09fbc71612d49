package journal

import (
	"errors"
	"fmt"
	"time"

	"github.com/binderylog/bindery/internal/invariant"
	"github.com/binderylog/bindery/internal/vfs"
)

// Zeroing ahead: writing into blocks that were written once costs a fraction of writing into blocks that are merely
// allocated. The zeroes must not get in the way of the groups they are for, so they are paced.
const (
	zeroChunk    = 256 << 10 // one write of zeroes: short enough not to hold up a group for long
	zeroSyncEach = 8 << 20   // zeroes between two syncs
	zeroShare    = 1.2       // zeroes for each byte consumed, until the next segments are ready
	zeroPause    = 5 * time.Millisecond
	zeroCredit   = 4 << 20 // most that may be caught up at once

	// Bytes a second besides: while groups are written into blocks that never were, and otherwise when nothing is written.
	zeroUrgentBusy = 32 << 20
	zeroUrgentIdle = 128 << 20
	zeroIdle       = 16 << 20
)

// zeroer writes zeroes into one spare at a time. It belongs to the preparer.
type zeroer struct {
	fs     vfs.FS
	dir    string
	size   int64
	direct bool

	spare    *spareFile // being zeroed
	f        vfs.File
	unsynced int64
	zeroes   []byte

	credit   float64 // bytes that may be written now
	at       int64   // when credit was last raised
	consumed uint64  // bytes of groups up to then
	retry    int64
}

// zeroNeed says how much zeroing matters.
type zeroNeed int

const (
	zeroLater  zeroNeed = iota // the next two segments are ready
	zeroSoon                   // they are not
	zeroUrgent                 // the current one is not zeroed itself
)

// earn raises the credit for the time since the last call, in which consumed rose to its value.
func (z *zeroer) earn(now int64, consumed uint64, need zeroNeed) {
	used := float64(consumed - z.consumed)
	var rate float64
	switch {
	case need == zeroUrgent && used > 0:
		rate = zeroUrgentBusy
	case need == zeroUrgent:
		rate = zeroUrgentIdle
	case used == 0:
		rate = zeroIdle
	}
	z.credit += rate * float64(now-z.at) / 1e9
	if need >= zeroSoon {
		z.credit += zeroShare * used
	}
	z.credit = min(z.credit, zeroCredit)
	z.at, z.consumed = now, consumed
}

// zeroLocked writes at most one chunk of zeroes and returns how long to wait before the next.
func (j *Journal) zeroLocked(z *zeroer) time.Duration {
	var target *spareFile
	ready := 0
	for _, f := range j.spares {
		switch {
		case f.zeroed:
			ready++
		case target == nil:
			target = f
		}
	}
	now := j.now()
	if target == nil {
		z.at, z.consumed = now, j.st.WrittenBytes
		return time.Hour
	}
	if now < z.retry {
		return time.Duration(z.retry - now)
	}
	if len(j.planned) > 0 && j.planned[0].zeroed {
		ready++
	}
	need := zeroLater
	switch {
	case !j.cur.zeroed && ready == 0:
		need = zeroUrgent
	case ready < 2:
		need = zeroSoon
	}
	z.earn(now, j.st.WrittenBytes, need)
	if z.credit < zeroChunk {
		return zeroPause
	}
	z.credit -= zeroChunk
	j.mu.Unlock()
	n, zeroed, err := z.write(target)
	j.mu.Lock()
	j.st.ZeroedBytes += uint64(n)
	if zeroed != "" {
		target.name, target.zeroed = zeroed, true
	}
	if err != nil {
		j.o.Logger.Warn("journal: can not zero ahead", "spare", target.name, "error", err)
		z.retry = j.now() + int64(j.pause)
		// A file that took a write badly is not used.
		for i, f := range j.spares {
			if f == target {
				j.spares = append(j.spares[:i], j.spares[i+1:]...)
				break
			}
		}
		return j.pause
	}
	return 0
}

// write zeroes one chunk of s. When it was the last one it returns the new name, which makes s a zeroed spare.
func (z *zeroer) write(s *spareFile) (n int, zeroed string, err error) {
	defer func() {
		if err != nil {
			z.close()
			err = errors.Join(err, z.fs.Remove(s.name))
		}
	}()
	if z.spare != s {
		z.close()
		if z.f, err = z.fs.Open(s.name, vfs.Mode{Write: true, Direct: z.direct}); err != nil {
			return 0, "", err
		}
		z.spare = s
	}
	if z.zeroes == nil {
		z.zeroes = vfs.AlignedBytes(zeroChunk)
	}
	n = int(min(zeroChunk, z.size-s.done))
	if n > 0 {
		if err := writeWhole(z.f, z.zeroes[:n], s.done); err != nil {
			return 0, "", err
		}
		s.done += int64(n)
		z.unsynced += int64(n)
	}
	if s.done < z.size && z.unsynced < zeroSyncEach {
		return n, "", nil
	}
	if err := z.f.Sync(); err != nil {
		return n, "", err
	}
	z.unsynced = 0
	if s.done < z.size {
		return n, "", nil
	}
	z.close()
	invariant.CrashPoint("journal.spare-zeroed")
	name := fileName(z.dir, s.id, zeroSuffix)
	if err := z.fs.Rename(s.name, name); err != nil {
		return n, "", fmt.Errorf("name a zeroed spare: %w", err)
	}
	return n, name, nil // the name need not be durable: without it the file is zeroed again
}

// forget lets go of a spare that is about to be used.
func (z *zeroer) forget(s *spareFile) {
	if s != nil && z.spare == s {
		z.close()
	}
}

func (z *zeroer) close() {
	if z.f != nil {
		_ = z.f.Close() // only zeroes; what counts was synced
	}
	z.f, z.spare, z.unsynced = nil, nil, 0
}
