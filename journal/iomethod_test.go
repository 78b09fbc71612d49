package journal

import (
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/vfs"
	"github.com/binderylog/bindery/internal/vfs/errorfs"
	"github.com/binderylog/bindery/internal/vfs/memfs"
)

// TestChooseMethod: another method than dsync has to be clearly faster, buffered more so; what does not work is not taken.
func TestChooseMethod(t *testing.T) {
	for _, c := range []struct {
		name                      string
		dsync, fdatasync, rwf, bf int // microseconds; 0: unsupported
		want                      IOMethod
	}{
		{"all alike", 100, 100, 100, 100, IODSync},
		{"a small lead is noise", 100, 90, 88, 75, IODSync},
		{"fdatasync leads", 100, 80, 90, 75, IOFdatasync},
		{"rwf_dsync leads", 100, 80, 60, 75, IORWFDSync},
		{"rwf_dsync is not supported", 100, 100, 0, 100, IODSync},
		{"buffered leads by far", 100, 100, 100, 60, IOBuffered},
		{"buffered leads, but not over fdatasync", 100, 60, 100, 50, IOFdatasync},
	} {
		var results []*probeResult
		for i, us := range []int{c.dsync, c.fdatasync, c.rwf, c.bf} {
			r := &probeResult{method: methodOf([]IOMethod{IODSync, IOFdatasync, IORWFDSync, IOBuffered}[i], false)}
			if us == 0 {
				r.err = errors.ErrUnsupported
			} else {
				for _, times := range []int{1, 50, 1, 1, 1} { // one slow moment does not count
					r.times = append(r.times, time.Duration(us*times)*time.Microsecond)
				}
			}
			results = append(results, r)
		}
		require.Equal(t, c.want, choose(results).name, c.name)
	}
}

// TestMethods: what each method asks of a file, and whether a sync has to follow.
func TestMethods(t *testing.T) {
	for _, c := range []struct {
		io      IOMethod
		relaxed bool
		mode    vfs.Mode
		sync    bool
	}{
		{IODSync, false, vfs.Mode{Write: true, Direct: true, DSync: true}, false},
		{IOFdatasync, false, vfs.Mode{Write: true, Direct: true}, true},
		{IORWFDSync, false, vfs.Mode{Write: true, Direct: true}, false},
		{IOBuffered, false, vfs.Mode{Write: true}, true},
		{IOBuffered, true, vfs.Mode{Write: true}, false},
	} {
		m := methodOf(c.io, c.relaxed)
		require.Equal(t, c.io, m.name)
		require.Equal(t, c.mode, m.mode)
		require.Equal(t, c.sync, m.sync)
		if c.relaxed {
			continue
		}
		mem := memfs.New("/d")
		f, err := mem.Open("/d/a", vfs.Mode{Write: true, Create: true})
		require.NoError(t, err)
		require.NoError(t, f.Preallocate(2*vfs.Align))
		require.NoError(t, errors.Join(f.Sync(), f.Close(), mem.SyncDir("/d"), mem.SyncDir("/")))
		f, err = m.open(mem, "/d", "/d/a")
		require.NoError(t, err)
		block := vfs.AlignedBytes(vfs.Align)
		block[7] = 9
		require.NoError(t, m.writeDurably(f, block, vfs.Align))
		require.NoError(t, f.Close())
		got, err := vfs.ReadFile(mem.CrashClone(1, 0), "/d/a")
		require.NoError(t, err)
		require.EqualValues(t, 9, got[vfs.Align+7], "%s: not durable when it returned", c.io)
	}
}

// TestProbeIsLogged: with journal.io = "auto" the log says what was measured and what was taken, and so do the figures.
func TestProbeIsLogged(t *testing.T) {
	log := &logBuffer{}
	o := smallOptions()
	o.IO, o.Logger = IOAuto, log.logger()
	j := mustStart(t, memfs.New(), "/j", o)
	lines := log.lines("sync method probed")
	require.Len(t, lines, 1)
	require.Contains(t, lines[0], "journal=/j io="+string(j.Stats().IO))
	for _, io := range []string{"dsync ", "fdatasync ", "rwf_dsync ", "buffered "} {
		require.Contains(t, lines[0], io)
	}
	require.NoError(t, j.Close())

	log = &logBuffer{} // overridden: nothing is measured
	o.IO, o.Logger = IOFdatasync, log.logger()
	j = mustStart(t, memfs.New(), "/j", o)
	require.Equal(t, IOFdatasync, j.Stats().IO)
	require.Empty(t, log.lines("probed"))
	require.NoError(t, j.Close())
}

// TestProbeFails: a disk that fails while it is probed fails the start, with the method's name.
func TestProbeFails(t *testing.T) {
	o := smallOptions()
	o.IO = IOAuto
	j := mustOpen(t, errorfs.Wrap(memfs.New(), errorfs.Nth(errorfs.Write, 5, syscall.EIO)), "/j", o)
	err := j.Start()
	require.ErrorIs(t, err, syscall.EIO)
	require.ErrorContains(t, err, `probe journal.io = "`)
	require.NoError(t, j.Start(), "the disk is well again")
	require.NoError(t, j.Close())
}

// TestNoDSyncWriter: where there is no RWF_DSYNC, auto does without and asking for it is an error.
func TestNoDSyncWriter(t *testing.T) {
	fs := plainFiles{memfs.New()}
	o := smallOptions()
	o.IO = IOAuto
	log := &logBuffer{}
	o.Logger = log.logger()
	j := mustStart(t, fs, "/j", o)
	require.NotEqual(t, IORWFDSync, j.Stats().IO)
	require.Len(t, log.lines("rwf_dsync unsupported"), 1)
	require.NoError(t, j.Close())

	o.IO = IORWFDSync
	j = mustOpen(t, fs, "/j", o)
	err := j.Start()
	require.ErrorIs(t, err, errors.ErrUnsupported)
	require.ErrorContains(t, err, `journal.io = "rwf_dsync" is not supported`)
	require.NoError(t, j.Close())
}

// plainFiles hides what files can do besides vfs.File.
type plainFiles struct{ vfs.FS }

func (p plainFiles) Open(name string, m vfs.Mode) (vfs.File, error) {
	f, err := p.FS.Open(name, m)
	return struct{ vfs.File }{f}, err
}
