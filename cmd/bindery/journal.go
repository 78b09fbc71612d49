package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/binderylog/bindery/bookie/storage"
	"github.com/binderylog/bindery/internal/vfs"
	"github.com/binderylog/bindery/journal"
	"github.com/spf13/cobra"
)

// journalKinds names the kinds of record that the storage puts into a journal. The journal itself does not know them.
var journalKinds = map[uint8]string{
	storage.KindEntry: "entry",
	storage.KindState: "state",
}

func journalKind(k uint8) string {
	if n, ok := journalKinds[k]; ok {
		return n
	}
	return "kind-" + strconv.Itoa(int(k))
}

func newJournalCommand() *cobra.Command {
	c := group("journal", "Look into journal directories",
		newJournalListCommand(),
		newJournalDumpCommand(),
		newJournalMarkCommand(),
		newJournalVerifyCommand(),
	)
	c.Long = "Reads journal directories without a running bookie and without changing anything. DIR is the directory that holds\n" +
		"current/. Beside a running bookie the output is some groups old."
	return c
}

// checkJournalDir makes a wrong path an error instead of an empty journal.
func checkJournalDir(fs vfs.FS, dir string) error {
	return requireKind(fs, dir, "journal", ".jnl")
}

// position parses a position, decimal or 0x.
func parsePosition(s string) (journal.Position, error) {
	n, err := strconv.ParseUint(s, 0, 64)
	if err != nil {
		return 0, exit(exitUsage, fmt.Errorf("%q is not a position", s))
	}
	return journal.Position(n), nil
}

type journalFile struct {
	Segment      string     `json:"segment"`
	State        string     `json:"state"`
	Path         string     `json:"path"`
	SizeBytes    int64      `json:"size_bytes"`
	UsedBytes    int64      `json:"used_bytes,omitempty"`
	First        uint64     `json:"first_position,omitempty"`
	Last         uint64     `json:"last_position,omitempty"`
	Groups       int64      `json:"groups,omitempty"`
	Records      int64      `json:"records,omitempty"`
	PayloadBytes int64      `json:"payload_bytes,omitempty"`
	Fresh        bool       `json:"begins_run,omitempty"`
	CutAfter     uint64     `json:"cut_after_position,omitempty"`
	Created      *time.Time `json:"created,omitempty"`
	Error        string     `json:"error,omitempty"`
}

func newJournalListCommand() *cobra.Command {
	var output outputFormat
	c := &cobra.Command{
		Use:   "ls DIR...",
		Short: "List the segments and spares of journal directories",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, dirs []string) error {
			return listJournals(c.OutOrStdout(), vfs.OS(), dirs, output)
		},
	}
	addOutputFlag(c, &output)
	return c
}

func listJournals(w io.Writer, fs vfs.FS, dirs []string, output outputFormat) error {
	files := []journalFile{}
	for _, dir := range dirs {
		if err := checkJournalDir(fs, dir); err != nil {
			return err
		}
		contents, err := journal.List(fs, dir)
		if err != nil {
			return err
		}
		for i := range contents.Files {
			files = append(files, describeJournalFile(&contents.Files[i]))
		}
	}
	if output == outputJSON {
		return printJSON(w, files)
	}
	var rows [][]string
	for _, f := range files {
		row := []string{f.Path, f.State, "", "", "", "", "", strconv.FormatInt(f.SizeBytes, 10), f.Error}
		if f.Groups > 0 {
			row[2], row[3] = strconv.FormatUint(f.First, 10), strconv.FormatUint(f.Last, 10)
			row[4], row[5] = strconv.FormatInt(f.Groups, 10), strconv.FormatInt(f.Records, 10)
		}
		if f.State == journal.StateSegment && f.Error == "" {
			row[6] = strconv.FormatInt(f.UsedBytes, 10)
			if f.Fresh {
				row[8] = "begins a run"
			}
		}
		rows = append(rows, row)
	}
	return printTable(w, []string{"FILE", "STATE", ">FIRST", ">LAST", ">GROUPS", ">RECORDS", ">USED", ">SIZE", "NOTE"}, rows)
}

func describeJournalFile(f *journal.FileInfo) journalFile {
	d := journalFile{
		Segment:      fmt.Sprintf("%016x", f.ID),
		State:        f.State,
		Path:         f.Name,
		SizeBytes:    f.Size,
		UsedBytes:    f.UsedBytes,
		First:        uint64(f.First),
		Last:         uint64(f.Last),
		Groups:       f.Groups,
		Records:      f.Records,
		PayloadBytes: f.PayloadBytes,
		Fresh:        f.Fresh,
		CutAfter:     uint64(f.CutAfter),
	}
	if !f.Created.IsZero() {
		t := f.Created.UTC()
		d.Created = &t
	}
	if f.Err != nil {
		d.Error = f.Err.Error()
	}
	return d
}

type journalDumpOptions struct {
	from, to string
	kind     string
	tag      int64
	limit    int64
	groups   bool
	payload  bool
	output   outputFormat
}

func newJournalDumpCommand() *cobra.Command {
	var o journalDumpOptions
	c := &cobra.Command{
		Use:   "dump DIR",
		Short: "Print the records of a journal directory",
		Long: "Prints one line per record, in the order they were appended: position, segment, offset, kind, tag (the ledger id) and\n" +
			"size. With --output json each line is an object of its own.",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return o.run(c.OutOrStdout(), c.ErrOrStderr(), vfs.OS(), args[0], c.Flags().Changed("ledger"))
		},
	}
	addOutputFlag(c, &o.output)
	f := c.Flags()
	f.StringVar(&o.from, "from", "0", "first position")
	f.StringVar(&o.to, "to", "", "last position (default: the end)")
	f.StringVar(&o.kind, "kind", "", "only records of this kind (entry, state, or a number)")
	f.Int64Var(&o.tag, "ledger", 0, "only records with this tag")
	f.Int64Var(&o.limit, "limit", 0, "stop after so many records (0: no limit)")
	f.BoolVar(&o.groups, "groups", false, "also print the groups")
	f.BoolVar(&o.payload, "payload", false, "also print the payload in hexadecimal")
	return c
}

type journalRecordLine struct {
	Position     uint64 `json:"position"`
	Segment      string `json:"segment"`
	Offset       int64  `json:"offset"`
	Kind         string `json:"kind"`
	Tag          uint64 `json:"tag"`
	PayloadBytes int    `json:"payload_bytes"`
	Payload      string `json:"payload_hex,omitempty"`
}

type journalGroupLine struct {
	Position uint64    `json:"group_position"`
	Segment  string    `json:"segment"`
	Offset   int64     `json:"offset"`
	Bytes    int64     `json:"disk_bytes"`
	Records  int       `json:"records"`
	Durable  uint64    `json:"durable_position"`
	Written  time.Time `json:"written"`
}

// printJSONLine writes v as one line: a dump is a stream, not a document.
func printJSONLine(w io.Writer, v any) error { return json.NewEncoder(w).Encode(v) }

// errDumpDone ends a dump early.
var errDumpDone = errors.New("enough records")

func (o *journalDumpOptions) run(w, diag io.Writer, fs vfs.FS, dir string, byTag bool) error {
	from, err := parsePosition(o.from)
	if err != nil {
		return err
	}
	to := journal.Position(math.MaxUint64)
	if o.to != "" {
		if to, err = parsePosition(o.to); err != nil {
			return err
		}
	}
	if err := checkJournalDir(fs, dir); err != nil {
		return err
	}
	var groups func(journal.Group) error
	if o.groups {
		groups = func(g journal.Group) error {
			if g.Position > to {
				return errDumpDone
			}
			return o.printGroup(w, g)
		}
	}
	var n int64
	res, err := journal.Dump(fs, dir, from, groups, func(r journal.Record) error {
		if r.Position > to {
			return errDumpDone
		}
		if byTag && r.Tag != uint64(o.tag) || o.kind != "" && o.kind != journalKind(r.Kind) && o.kind != strconv.Itoa(int(r.Kind)) {
			return nil
		}
		if err := o.printRecord(w, r); err != nil {
			return err
		}
		if n++; n == o.limit {
			return errDumpDone
		}
		return nil
	})
	if errors.Is(err, errDumpDone) {
		return nil
	}
	if err != nil {
		return err
	}
	return reportJournalDamage(diag, dir, &res)
}

func (o *journalDumpOptions) printRecord(w io.Writer, r journal.Record) error {
	line := journalRecordLine{uint64(r.Position), fmt.Sprintf("%016x", r.Segment), r.Offset, journalKind(r.Kind), r.Tag, len(r.Payload), ""}
	if o.payload {
		line.Payload = fmt.Sprintf("%x", r.Payload)
	}
	if o.output == outputJSON {
		return printJSONLine(w, line)
	}
	s := fmt.Sprintf("%d  %s  %10d  %-8s  %d  %d", line.Position, line.Segment, line.Offset, line.Kind, int64(line.Tag), line.PayloadBytes)
	if o.payload {
		s += "  " + line.Payload
	}
	_, err := fmt.Fprintln(w, s)
	return err
}

func (o *journalDumpOptions) printGroup(w io.Writer, g journal.Group) error {
	line := journalGroupLine{uint64(g.Position), fmt.Sprintf("%016x", g.Segment), g.Offset, g.Bytes, g.Records, uint64(g.Durable), g.Written.UTC()}
	if o.output == outputJSON {
		return printJSONLine(w, line)
	}
	_, err := fmt.Fprintf(w, "%d  %s  %10d  group of %d records in %d bytes, durable up to %d, written %s\n",
		line.Position, line.Segment, line.Offset, line.Records, line.Bytes, line.Durable, line.Written.Format(time.RFC3339Nano))
	return err
}

type journalMark struct {
	Directory string      `json:"directory"`
	First     uint64      `json:"first_position"`
	End       uint64      `json:"end_position"`
	Durable   uint64      `json:"durable_position"`
	Segments  int         `json:"segments"`
	Records   int64       `json:"records"`
	Bytes     int64       `json:"payload_bytes"`
	Cut       *journalCut `json:"cut,omitempty"`
}

type journalCut struct {
	Segment  string `json:"segment"`
	Offset   int64  `json:"offset"`
	Position uint64 `json:"position"`
	Groups   int    `json:"whole_groups_behind"`
	Reason   string `json:"reason"`
}

func newJournalMarkCommand() *cobra.Command {
	var output outputFormat
	c := &cobra.Command{
		Use:   "mark DIR...",
		Short: "Print where journal directories begin and end",
		Long: "Prints the first and the end position of each journal directory, and where a torn tail will be cut at the next start.\n" +
			"The position from which the next start replays is kept by the storage, in current/mark of the ledger directories.",
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, dirs []string) error {
			return markJournals(c.OutOrStdout(), vfs.OS(), dirs, output)
		},
	}
	addOutputFlag(c, &output)
	return c
}

func markJournals(w io.Writer, fs vfs.FS, dirs []string, output outputFormat) error {
	marks := []journalMark{}
	for _, dir := range dirs {
		if err := checkJournalDir(fs, dir); err != nil {
			return err
		}
		c, err := journal.List(fs, dir)
		if err != nil {
			return err
		}
		m := journalMark{Directory: dir, End: uint64(c.Replayed.End), Durable: uint64(c.Durable), Segments: c.Replayed.Segments,
			Records: c.Replayed.Records, Bytes: c.Replayed.Bytes}
		for _, f := range c.Files {
			if f.First > 0 {
				m.First = uint64(f.First)
				break
			}
		}
		if k := c.Replayed.Cut; k != nil {
			m.Cut = &journalCut{fmt.Sprintf("%016x", k.Segment), k.Offset, uint64(k.Position), k.Groups, k.Reason}
		}
		marks = append(marks, m)
	}
	if output == outputJSON {
		return printJSON(w, marks)
	}
	var rows [][]string
	for _, m := range marks {
		note := ""
		if m.Cut != nil {
			note = fmt.Sprintf("torn tail at %s:%d", m.Cut.Segment, m.Cut.Offset)
		}
		rows = append(rows, []string{m.Directory, strconv.FormatUint(m.First, 10), strconv.FormatUint(m.End, 10),
			strconv.Itoa(m.Segments), strconv.FormatInt(m.Records, 10), strconv.FormatInt(m.Bytes, 10), note})
	}
	return printTable(w, []string{"DIRECTORY", ">FIRST", ">END", ">SEGMENTS", ">RECORDS", ">BYTES", "NOTE"}, rows)
}

type journalFinding struct {
	Directory string `json:"directory"`
	Segment   string `json:"segment"`
	Offset    int64  `json:"offset"`
	Position  uint64 `json:"position"`
	Kind      string `json:"kind,omitempty"`
	Tag       uint64 `json:"tag,omitempty"`
	Problem   string `json:"problem"`
}

type journalVerdict struct {
	Directory string           `json:"directory"`
	Records   int64            `json:"records"`
	Bytes     int64            `json:"payload_bytes"`
	Repaired  int64            `json:"repaired_bits"`
	Whole     bool             `json:"whole"`
	Cut       *journalCut      `json:"cut,omitempty"`
	Findings  []journalFinding `json:"findings"`
}

func newJournalVerifyCommand() *cobra.Command {
	var output outputFormat
	c := &cobra.Command{
		Use:   "verify DIR...",
		Short: "Read journal directories from end to end and check every checksum",
		Long: "Exits with 0 if everything that was ever acknowledged can be read back, with 5 if something can not. A torn tail is no\n" +
			"finding: what it held was never acknowledged.",
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, dirs []string) error {
			return verifyJournals(c.OutOrStdout(), vfs.OS(), dirs, output)
		},
	}
	addOutputFlag(c, &output)
	return c
}

func verifyJournals(w io.Writer, fs vfs.FS, dirs []string, output outputFormat) error {
	verdicts := []journalVerdict{}
	bad := false
	for _, dir := range dirs {
		if err := checkJournalDir(fs, dir); err != nil {
			return err
		}
		r, err := journal.Check(fs, dir)
		if err != nil {
			return err
		}
		v := journalVerdict{Directory: dir, Records: r.Records, Bytes: r.Bytes, Repaired: r.Repaired, Whole: r.Whole, Findings: []journalFinding{}}
		if k := r.Cut; k != nil {
			v.Cut = &journalCut{fmt.Sprintf("%016x", k.Segment), k.Offset, uint64(k.Position), k.Groups, k.Reason}
		}
		for _, d := range r.Damage {
			f := journalFinding{Directory: dir, Segment: fmt.Sprintf("%016x", d.Segment), Offset: d.Offset, Position: uint64(d.Position), Problem: d.Err.Error()}
			if d.Known {
				f.Kind, f.Tag = journalKind(d.Kind), d.Tag
			}
			v.Findings = append(v.Findings, f)
		}
		bad = bad || len(r.Damage) > 0 || !r.Whole
		verdicts = append(verdicts, v)
	}
	if output == outputJSON {
		if err := printJSON(w, verdicts); err != nil {
			return err
		}
	} else if err := printVerdicts(w, verdicts); err != nil {
		return err
	}
	if bad {
		return exit(exitFindings, nil)
	}
	return nil
}

func printVerdicts(w io.Writer, verdicts []journalVerdict) error {
	var b strings.Builder
	for _, v := range verdicts {
		for _, f := range v.Findings {
			what := ""
			if f.Kind != "" {
				what = fmt.Sprintf(" (%s of ledger %d)", f.Kind, int64(f.Tag))
			}
			fmt.Fprintf(&b, "%s: position %d%s: %s\n", v.Directory, f.Position, what, f.Problem)
		}
		if v.Cut != nil {
			fmt.Fprintf(&b, "%s: torn tail in segment %s at offset %d: %s; it was never acknowledged\n", v.Directory, v.Cut.Segment, v.Cut.Offset, v.Cut.Reason)
		}
		verdict := "everything can be read"
		switch {
		case !v.Whole:
			verdict = "records are missing that can not be named: every ledger of this journal is suspect"
		case len(v.Findings) > 0:
			verdict = fmt.Sprintf("%d records can not be read", len(v.Findings))
		}
		fmt.Fprintf(&b, "%s: %d records, %d bytes, %d flipped bits put right: %s\n", v.Directory, v.Records, v.Bytes, v.Repaired, verdict)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// reportJournalDamage says on standard error what a dump left out.
func reportJournalDamage(w io.Writer, dir string, r *journal.Replayed) error {
	if len(r.Damage) == 0 && r.Whole {
		return nil
	}
	fmt.Fprintf(w, "%s: %d damaged places left out; see `bindery journal verify %s`\n", dir, len(r.Damage), dir)
	return exit(exitFindings, nil)
}
