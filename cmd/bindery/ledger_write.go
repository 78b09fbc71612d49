package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"

	"github.com/binderylog/bindery/internal/config"
	"github.com/binderylog/bindery/ledgerclient"
	"github.com/spf13/cobra"
)

// entryBytesMax bounds the entries that the command makes; bookies take frames of 5 MiB.
const entryBytesMax = 4 << 20

type ledgerWriteOptions struct {
	cluster      *clusterOptions
	quorum       ledgerclient.Quorum
	split        string
	digest       string
	passwordFile string
	custom       []string
	noProgress   bool
}

func newLedgerWriteCommand(cluster *clusterOptions) *cobra.Command {
	o := ledgerWriteOptions{cluster: cluster}
	c := &cobra.Command{
		Use:   "write [FILE|-]",
		Short: "Write a file, or standard input, into a new ledger and print the ledger's id",
		Long: "Writes a file, or standard input, into a new ledger, seals it and prints its id, alone, on standard output.\n" +
			"`bindery ledger read ID` gives back the very bytes.",
		Example: "  bindery ledger write access.log\n  zcat dump.gz | bindery ledger write --split 1MiB -\n  bindery ledger write --ensemble 5 --write-quorum 3 --ack-quorum 2 --split lines events.ndjson\n" +
			"  bindery ledger write --custom team=billing access.log",
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			name := "-"
			if len(args) == 1 {
				name = args[0]
			}
			return o.run(c, name)
		},
	}
	f := c.Flags()
	f.IntVar(&o.quorum.Ensemble, "ensemble", 3, "bookies that the ledger's entries are spread over")
	f.IntVar(&o.quorum.Write, "write-quorum", 3, "copies of each entry; by default no more than the ensemble")
	f.IntVar(&o.quorum.Ack, "ack-quorum", 2, "copies on stable storage before an entry counts as written; by default no more than the write quorum")
	f.StringVar(&o.split, "split", "64KiB", "what makes an entry: lines, or a size in bytes or with a unit such as 4096, 64K, 1MiB (at most 4MiB)")
	f.StringVar(&o.digest, "digest", "crc32c", "digest of the entries: crc32c, crc32, hmac or dummy")
	f.StringVar(&o.passwordFile, "password-file", "", "file with the ledger's password")
	f.StringArrayVar(&o.custom, "custom", nil, "KEY=VALUE of the ledger's custom metadata, as policies match it; may be given again\n(bindery.tier=release, which lets bookies give an offloaded ledger up, is added unless that key is given)")
	f.BoolVar(&o.noProgress, "no-progress", false, "show no progress on a terminal")
	return c
}

// parsePairs reads the values of a flag that takes KEY=VALUE and may be given again.
func parsePairs(flag string, list []string) (map[string]string, error) {
	out := make(map[string]string, len(list))
	for _, s := range list {
		k, v, ok := strings.Cut(s, "=")
		if !ok || k == "" {
			return nil, exit(exitUsage, fmt.Errorf("--%s %q is not KEY=VALUE", flag, s))
		}
		if have, twice := out[k]; twice && have != v {
			return nil, exit(exitUsage, fmt.Errorf("--%s gives %s two values, %q and %q", flag, k, have, v))
		}
		out[k] = v
	}
	return out, nil
}

func parseDigest(s string) (ledgerclient.DigestType, error) {
	switch strings.ToLower(s) {
	case "crc32c":
		return ledgerclient.DigestCRC32C, nil
	case "crc32":
		return ledgerclient.DigestCRC32, nil
	case "hmac", "mac":
		return ledgerclient.DigestHMAC, nil
	case "dummy":
		return ledgerclient.DigestDummy, nil
	}
	return 0, exit(exitUsage, fmt.Errorf("--digest %q is none of crc32c, crc32, hmac, dummy", s))
}

// splitter cuts a stream into entries. next returns io.EOF after the last one; the slice belongs to the caller.
type splitter interface {
	next() ([]byte, error)
}

func newSplitter(r io.Reader, split string) (splitter, error) {
	if split == "lines" {
		return &lineSplitter{r: bufio.NewReaderSize(r, 256<<10), limit: entryBytesMax}, nil
	}
	n, err := parseEntrySize(split)
	if err != nil {
		return nil, exit(exitUsage, fmt.Errorf("--split %q is neither \"lines\" nor a size: give bytes (4096), or a number with K, M, KiB, MiB, kB or MB", split))
	}
	if n < 1 || n > entryBytesMax {
		return nil, exit(exitUsage, fmt.Errorf("--split %s is outside 1 byte to 4MiB", split))
	}
	return &sizeSplitter{r: r, size: int(n)}, nil
}

// parseEntrySize reads a size on the command line of a tool that cuts files, where a bare number means bytes and a bare K
// or M means KiB or MiB, as split(1) and dd(1) have it. The configuration file asks for a unit instead: a number there is
// read long after it was written.
func parseEntrySize(s string) (config.Size, error) {
	s = strings.TrimSpace(s)
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return config.Size(n), nil
	}
	if n := len(s) - 1; n > 0 && strings.ContainsRune("kKmMgG", rune(s[n])) {
		s = s[:n] + strings.ToUpper(s[n:]) + "iB"
	}
	return config.ParseSize(s)
}

type sizeSplitter struct {
	r    io.Reader
	size int
}

func (s *sizeSplitter) next() ([]byte, error) {
	b := make([]byte, s.size)
	n, err := io.ReadFull(s.r, b)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil // the last one is shorter
	}
	return b[:n], err
}

// lineSplitter makes an entry of each line, its line end included. A line beyond the limit becomes several entries.
type lineSplitter struct {
	r     *bufio.Reader
	limit int
}

func (s *lineSplitter) next() ([]byte, error) {
	var entry []byte
	for {
		part, err := s.r.ReadSlice('\n')
		entry = append(entry, part...)
		if errors.Is(err, bufio.ErrBufferFull) {
			if len(entry)+s.r.Size() > s.limit {
				return entry, nil
			}
			continue
		}
		if errors.Is(err, io.EOF) && len(entry) > 0 {
			err = nil
		}
		return entry, err
	}
}

// openInput opens a file or standard input and returns its size, 0 if unknown.
func openInput(c *cobra.Command, name string) (io.ReadCloser, int64, error) {
	if name == "-" {
		return io.NopCloser(newInterruptibleReader(c.Context(), c.InOrStdin())), 0, nil
	}
	f, err := openInterruptible(c.Context(), name)
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	if info.IsDir() {
		f.Close()
		return nil, 0, fmt.Errorf("%s is a directory", name)
	}
	if info.Mode().IsRegular() {
		return f, info.Size(), nil
	}
	return struct {
		io.Reader
		io.Closer
	}{newInterruptibleReader(c.Context(), f), f}, 0, nil
}

// fitQuorums lowers the quorums that were not asked for to what was: one bookie makes one copy.
func (o *ledgerWriteOptions) fitQuorums(c *cobra.Command) {
	q := &o.quorum
	if !c.Flags().Changed("write-quorum") && q.Ensemble > 0 {
		q.Write = min(q.Write, q.Ensemble)
	}
	if !c.Flags().Changed("ack-quorum") && q.Write > 0 {
		q.Ack = min(q.Ack, q.Write)
	}
}

func (o *ledgerWriteOptions) run(c *cobra.Command, name string) error {
	digest, err := parseDigest(o.digest)
	if err != nil {
		return err
	}
	o.fitQuorums(c)
	if err := o.quorum.Validate(); err != nil {
		return exit(exitUsage, err)
	}
	pairs, err := parsePairs("custom", o.custom)
	if err != nil {
		return err
	}
	custom := make(map[string][]byte, len(pairs))
	for k, v := range pairs {
		custom[k] = []byte(v)
	}
	in, size, err := openInput(c, name)
	if err != nil {
		return err
	}
	defer in.Close()
	entries, err := newSplitter(in, o.split)
	if err != nil {
		return err
	}
	password, err := readPassword(o.passwordFile)
	if err != nil {
		return err
	}
	return o.cluster.with(c, func(ctx context.Context, client *ledgerclient.Client) error {
		w, err := client.Create(ctx, ledgerclient.CreateOptions{Quorum: o.quorum, Digest: digest, Password: password, Custom: custom})
		if err != nil {
			return err
		}
		p := startProgress(c.ErrOrStderr(), size, o.noProgress)
		said := make(chan struct{})
		silent := context.AfterFunc(ctx, func() {
			defer close(said)
			fmt.Fprintf(c.ErrOrStderr(), "bindery: interrupted: sealing ledger %d; a second signal leaves it open, for `bindery ledger recover %d`\n", w.ID(), w.ID())
		})
		err = copyEntries(ctx, entries, w, p)
		p.finish()
		// The ledger is sealed also after an interruption: what was written is worth as much as the rest would have been.
		cerr := w.Close(context.WithoutCancel(ctx))
		if !silent() {
			<-said
		}
		if cerr != nil {
			fmt.Fprintf(c.ErrOrStderr(), "bindery: ledger %d is left open; seal it with `bindery ledger recover %d`\n", w.ID(), w.ID())
		}
		if err == nil {
			err = cerr
		}
		if err != nil {
			return fmt.Errorf("%w (ledger %d holds the first %d entries, %s, of the input)", describe(w.ID(), err), w.ID(), w.LastAddConfirmed()+1, humanBytes(w.Length()))
		}
		_, err = fmt.Fprintln(c.OutOrStdout(), w.ID())
		return err
	})
}

// copyEntries appends every entry and waits until all are confirmed. The client's byte budget keeps it from reading
// ahead of what the bookies take.
func copyEntries(ctx context.Context, entries splitter, w *ledgerclient.Writer, p *progress) error {
	var (
		wg     sync.WaitGroup
		mu     sync.Mutex
		failed error
	)
	failure := func() error {
		mu.Lock()
		defer mu.Unlock()
		return failed
	}
	var err error
	for err == nil {
		if err = ctx.Err(); err != nil {
			err = errInterrupted
			break
		}
		if err = failure(); err != nil {
			break
		}
		var data []byte
		data, err = entries.next()
		if err != nil {
			break
		}
		wg.Add(1)
		w.AppendAsync(data, func(_ ledgerclient.EntryID, aerr error) {
			defer wg.Done()
			if aerr == nil {
				p.add(len(data))
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if failed == nil {
				failed = aerr
			}
		})
	}
	wg.Wait()
	if errors.Is(err, io.EOF) {
		err = nil
	}
	if ferr := failure(); ferr != nil {
		return ferr
	}
	return err
}
