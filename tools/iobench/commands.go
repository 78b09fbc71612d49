package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/binderylog/bindery/tools/iobench/result"
	"github.com/binderylog/bindery/tools/iobench/session"
	"github.com/spf13/cobra"
)

// quickSizes are the sizes that `quick` looks at.
var quickSizes = []int{4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20}

// quickLimit is how long `quick` may take for a directory, all in all.
const quickLimit = 50 * time.Second

func newQuickCommand() *cobra.Command {
	var o measureFlags
	c := &cobra.Command{
		Use:   "quick DIR...",
		Short: "Durable writes by size and method, states of blocks, streams and gaps, in a minute",
		Long: "Measures in test files without names, in each DIR: how long durable writes of 4 KiB to 1 MiB take by each method that a\n" +
			"journal can use, what the state of the blocks adds, what sequential writing and reading give, and the gaps at a fixed\n" +
			"rate. It ends in settings. A minute and less than 10 GiB for each DIR; needs no root; leaves nothing behind.",
		Example: "  iobench quick /data/journal\n  iobench quick /data/journal --output json --out disk.json && iobench report disk.json --html disk.html",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			p, err := o.plan("quick")
			if err != nil {
				return exit(exitUsage, err)
			}
			p.Steps, p.Sizes, p.Limit = session.Quick(), quickSizes, max(quickLimit, 2*o.duration)
			if !c.Flags().Changed("duration") {
				p.Limit = quickLimit
			}
			var plans []session.Plan
			for _, dir := range args {
				one := p
				one.Directories = []session.Directory{{Path: dir, Role: "disk"}}
				plans = append(plans, one)
			}
			return o.measure(c, plans...)
		},
	}
	o.add(c, defaults{duration: 42 * time.Second, fileMiB: 256, maxWrite: "9GiB", rounds: 5})
	return c
}

func newFullCommand() *cobra.Command {
	var o measureFlags
	var journal string
	var ledgers []string
	c := &cobra.Command{
		Use:   "full --journal DIR [--ledger DIR]...",
		Short: "Everything that decides how a bookie will run on these disks, in twenty minutes",
		Long: "All chapters: the journal's disk alone and beside ledger flushes, catch-up reads, compaction and index merges, on its own\n" +
			"disk and on those of the ledgers; how long the ledger disks keep their speed; the real journal under load. The bytes that\n" +
			"it may write are printed first and bounded by --max-write: mind the wear.",
		Example: "  iobench full --journal /data/journal --ledger /data/ledgers1 --ledger /data/ledgers2 --rate 300MB --goal-p99 5ms --out bookie.json",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			p, err := o.plan("full")
			if err != nil {
				return exit(exitUsage, err)
			}
			if journal == "" {
				return missing(c, "--journal DIR", "where the journal will be")
			}
			p.Steps = session.Full(len(ledgers))
			p.Directories = []session.Directory{{Path: journal, Role: "journal"}}
			for _, dir := range ledgers {
				p.Directories = append(p.Directories, session.Directory{Path: dir, Role: "ledger"})
			}
			return o.measure(c, p)
		},
	}
	o.add(c, defaults{duration: 20 * time.Minute, fileMiB: 2048, maxWrite: "200GiB", rounds: 9})
	c.Flags().StringVar(&journal, "journal", "", "directory of the journal")
	c.Flags().StringArrayVar(&ledgers, "ledger", nil, "directory of ledgers (repeatable)")
	return c
}

// chapterCommands are the chapters that can be asked for one by one.
func chapterCommands() (list []*cobra.Command) {
	for _, ch := range []struct{ name, short string }{
		{result.ChapterSync, "Durable writes by method and size"},
		{result.ChapterAlloc, "Durable writes by the state of the blocks: appended, sparse, reserved, zeroed, recycled"},
		{result.ChapterAlign, "Durable writes of 512 bytes to 16 KiB at their own alignment"},
		{result.ChapterJournals, "1 to 8 independent journals on one disk"},
		{result.ChapterBandwidth, "Sequential writing, direct and buffered"},
		{result.ChapterRead, "Random and sequential reading, cold"},
		{result.ChapterInterfere, "A journal beside flushes, reads, compaction and index merges"},
		{result.ChapterSustain, "Writing on after caches are full"},
		{result.ChapterStalls, "Gaps between completions at a fixed rate"},
		{result.ChapterMetadata, "Create, rename, unlink, directory sync, fallocate, trim"},
		{result.ChapterModel, "The real journal at 10, 50, 80 and 100 % of its rate"},
		{result.ChapterEngines, "Our journal, tidwall/wal, and plain appends with fdatasync"},
	} {
		var o measureFlags
		c := &cobra.Command{
			Use:   ch.name + " DIR",
			Short: ch.short,
			Long:  withLegend(ch.short, ch.name),
			Args:  cobra.ExactArgs(1),
			RunE: func(c *cobra.Command, args []string) error {
				p, err := o.plan(ch.name)
				if err != nil {
					return exit(exitUsage, err)
				}
				p.Steps = session.Single(ch.name)
				p.Directories = []session.Directory{{Path: args[0], Role: "disk"}}
				return o.measure(c, p)
			},
		}
		o.add(c, defaults{duration: time.Minute, fileMiB: 512, maxWrite: "20GiB", rounds: 5})
		list = append(list, c)
	}
	return list
}

// withLegend says in a command's help how its figures are named.
func withLegend(text, chapter string) string {
	if legend := result.Legend(chapter); legend != "" {
		text += ".\n\nHow to read the names of its figures: " + legend + "."
	}
	return text
}

func newSoakCommand() *cobra.Command {
	var o measureFlags
	var hours int
	c := &cobra.Command{
		Use:   "soak DIR --hours N",
		Short: "Durable writes at a fixed rate for hours: how much of each hour took longer than 1, 8 and 64 ms",
		Long: "Writes 16 KiB groups at --rate, or at half of what the disk can do, for --hours. Drives slow down after hours, not\n" +
			"minutes. Ctrl-C prints the hours so far.",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			const hoursMax = 31 * 24
			if hours < 1 || hours > hoursMax {
				return exit(exitUsage, fmt.Errorf("--hours %d is outside 1 to %d", hours, hoursMax))
			}
			o.duration = time.Duration(hours) * time.Hour
			p, err := o.plan("soak")
			if err != nil {
				return exit(exitUsage, err)
			}
			p.Hours, p.Steps = hours, session.Single(result.ChapterSoak)
			p.Directories = []session.Directory{{Path: args[0], Role: "disk"}}
			return o.measure(c, p)
		},
	}
	o.add(c, defaults{duration: time.Hour, fileMiB: 4096, maxWrite: "2TiB", rounds: 1})
	c.Flags().IntVar(&hours, "hours", 24, "hours")
	_ = c.Flags().MarkHidden("duration") // it exists
	return c
}

func newLiveCommand() *cobra.Command {
	var o measureFlags
	var percent string
	c := &cobra.Command{
		Use:   "live DIR",
		Short: "A gentle probe beside a running bookie",
		Long: "Makes one 4 KiB write after the other durable and rests after each, so that the probe takes at most --cap of the disk's\n" +
			"time. The figures are those of the disk under the bookie's load.",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			digits, ok := strings.CutSuffix(percent, "%")
			share, err := strconv.ParseFloat(digits, 64)
			if !ok || err != nil || !(share > 0 && share <= 50) { // NaN is none of both
				return exit(exitUsage, fmt.Errorf("--cap %q is no share from 0%% to 50%%, such as 5%%", percent))
			}
			p, err := o.plan("live")
			if err != nil {
				return exit(exitUsage, err)
			}
			p.CapPercent, p.AllowLive, p.Prefill = share, true, false
			p.Steps = session.Single(result.ChapterLive)
			p.Directories = []session.Directory{{Path: args[0], Role: "disk"}}
			return o.measure(c, p)
		},
	}
	o.add(c, defaults{duration: time.Minute, fileMiB: 16, maxWrite: "1GiB", rounds: 1})
	c.Flags().StringVar(&percent, "cap", "5%", "share of the disk's time that the probe may take")
	return c
}
