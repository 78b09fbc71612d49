package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/binderylog/bindery/bookie/storage"
	"github.com/binderylog/bindery/internal/vfs"
	"github.com/binderylog/bindery/journal"
	"github.com/stretchr/testify/require"
)

type journalTestSink chan error

func (s journalTestSink) JournalDone(_ journal.Token, err error) { s <- err }
func (s journalTestSink) JournalFlush()                          {}

// journalFixture is a journal with three records, closed cleanly.
func journalFixture(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	j, err := journal.Open(vfs.OS(), dir, journal.Options{SegmentSize: 64 << 10, MaxGroupBytes: 8 << 10, IO: journal.IOBuffered})
	require.NoError(t, err)
	require.NoError(t, j.Start())
	done := make(journalTestSink, 1)
	for i, kind := range []uint8{storage.KindEntry, storage.KindState, 200} {
		b := bytes.Repeat([]byte{byte(i)}, 10+i)
		require.NoError(t, j.Reserve(len(b), time.Second))
		_, err := j.Append(kind, uint64(40+i), b, done, journal.Token{})
		require.NoError(t, err)
		j.Commit()
		require.NoError(t, <-done)
	}
	require.NoError(t, j.Close())
	return dir
}

func runJournal(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, diag bytes.Buffer
	c := newJournalCommand()
	c.SilenceErrors, c.SilenceUsage = true, true
	c.SetArgs(args)
	c.SetOut(&out)
	c.SetErr(&diag)
	if err := c.ExecuteContext(context.Background()); err != nil {
		return out.String(), diag.String() + err.Error(), exitCode(err)
	}
	return out.String(), diag.String(), exitOK
}

func TestJournalDump(t *testing.T) {
	dir := journalFixture(t)
	out, _, code := runJournal(t, "dump", dir)
	require.Equal(t, exitOK, code)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	require.Len(t, lines, 3)
	require.Regexp(t, `^\d+  [0-9a-f]{16} +4160  entry     40  10$`, lines[0])
	require.Contains(t, lines[1], "state     41  11")
	require.Contains(t, lines[2], "kind-200  42  12")

	out, _, code = runJournal(t, "dump", dir, "--output", "json", "--payload", "--ledger", "41")
	require.Equal(t, exitOK, code)
	var line journalRecordLine
	require.NoError(t, json.Unmarshal([]byte(out), &line))
	require.Equal(t, "state", line.Kind)
	require.Equal(t, strings.Repeat("01", 11), line.Payload)

	out, _, _ = runJournal(t, "dump", dir, "--kind", "200")
	require.Contains(t, out, "kind-200")
	require.NotContains(t, out, "entry")
	out, _, _ = runJournal(t, "dump", dir, "--limit", "1", "--groups")
	require.Equal(t, 2, strings.Count(out, "\n"))
	require.Contains(t, out, "group of 1 records in 4096 bytes")

	_, diag, code := runJournal(t, "dump", filepath.Join(dir, "nowhere"))
	require.Equal(t, exitFailed, code)
	require.Contains(t, diag, "is not a journal directory")
	_, _, code = runJournal(t, "dump", dir, "--from", "x")
	require.Equal(t, exitUsage, code)
}

func TestJournalListAndMark(t *testing.T) {
	dir := journalFixture(t)
	out, _, code := runJournal(t, "ls", dir, "--output", "json")
	require.Equal(t, exitOK, code)
	var files []journalFile
	require.NoError(t, json.Unmarshal([]byte(out), &files))
	var segments, records int
	for _, f := range files {
		if f.State == journal.StateSegment {
			segments++
		}
		records += int(f.Records)
	}
	require.Positive(t, segments)
	require.Equal(t, 3, records)
	out, _, code = runJournal(t, "ls", dir)
	require.Equal(t, exitOK, code)
	require.Contains(t, out, "begins a run")

	out, _, code = runJournal(t, "mark", dir, "--output", "json")
	require.Equal(t, exitOK, code)
	var marks []journalMark
	require.NoError(t, json.Unmarshal([]byte(out), &marks))
	require.Len(t, marks, 1)
	require.EqualValues(t, 3, marks[0].Records)
	require.EqualValues(t, 33, marks[0].Bytes)
	require.Greater(t, marks[0].End, marks[0].First)
	require.Nil(t, marks[0].Cut)
	out, _, code = runJournal(t, "mark", dir)
	require.Equal(t, exitOK, code)
	require.Contains(t, out, "DIRECTORY")
}

func TestJournalVerify(t *testing.T) {
	dir := journalFixture(t)
	out, _, code := runJournal(t, "verify", dir)
	require.Equal(t, exitOK, code)
	require.Contains(t, out, "3 records, 33 bytes, 0 flipped bits put right: everything can be read")

	c, err := journal.List(vfs.OS(), dir)
	require.NoError(t, err)
	var name string
	require.NoError(t, dumpFirst(dir, func(r journal.Record) {
		for _, f := range c.Files {
			if f.ID == r.Segment {
				name = f.Name
			}
		}
	}))
	b, err := os.ReadFile(name)
	require.NoError(t, err)
	b[4096+64+20+3] ^= 1
	require.NoError(t, os.WriteFile(name, b, 0o600))
	out, _, code = runJournal(t, "verify", dir)
	require.Equal(t, exitFindings, code)
	require.Contains(t, out, "(entry of ledger 40)")
	require.Contains(t, out, "1 records can not be read")
	out, _, code = runJournal(t, "verify", dir, "--output", "json")
	require.Equal(t, exitFindings, code)
	var verdicts []journalVerdict
	require.NoError(t, json.Unmarshal([]byte(out), &verdicts))
	require.Len(t, verdicts[0].Findings, 1)
	require.EqualValues(t, 40, verdicts[0].Findings[0].Tag)
	_, diag, code := runJournal(t, "dump", dir)
	require.Equal(t, exitFindings, code)
	require.Contains(t, diag, "1 damaged places left out")
}

func dumpFirst(dir string, fn func(journal.Record)) error {
	first := true
	_, err := journal.Dump(vfs.OS(), dir, 0, nil, func(r journal.Record) error {
		if first {
			fn(r)
		}
		first = false
		return nil
	})
	return err
}
