package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/binderylog/bindery/tools/iobench/device"
	"github.com/binderylog/bindery/tools/iobench/session"
	"github.com/spf13/cobra"
)

func newRawCommand() *cobra.Command {
	var o measureFlags
	var serial string
	c := &cobra.Command{
		Use:   "raw DEVICE",
		Short: "Measure a whole block device. DESTROYS what is on it",
		Long: "Measures DEVICE without a file system and overwrites what is on it. It refuses a device that anything uses, and asks for\n" +
			"the disk's serial number (or for the device's name, if it has none) before it writes; --serial answers in scripts.",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			p, err := o.plan("raw")
			if err != nil {
				return exit(exitUsage, err)
			}
			f, err := device.System{}.InspectRaw(args[0])
			if err == nil {
				err = f.CheckRaw(device.Guard{NeedBytes: session.RawBytesMin, AllowUnsuitable: o.allowUnsuitable})
			}
			if err == nil {
				err = confirm(f, serial, c.InOrStdin(), c.ErrOrStderr())
			}
			if err != nil {
				return ending(err, false)
			}
			p.Raw, p.Prefill, p.Steps = true, true, session.Raw()
			p.Directories = []session.Directory{{Path: args[0], Role: "disk"}}
			return o.measure(c, p)
		},
	}
	o.add(c, defaults{duration: 5 * time.Minute, fileMiB: 4096, maxWrite: "50GiB", rounds: 5})
	c.Flags().StringVar(&serial, "serial", "", "the disk's serial number, instead of the question")
	return c
}

// confirm asks for what only somebody knows who looked at the disk.
func confirm(f *device.Facts, given string, in io.Reader, out io.Writer) error {
	want, what, ask := f.Serial(), "serial number", "its serial number"
	if want == "" {
		want, what, ask = f.Dir, "name", "its name (it has no serial number)"
	}
	if given == "" {
		fmt.Fprintf(out, "%s: %s%.0f GB. EVERYTHING ON IT WILL BE LOST.\nType %s: ", f.Dir, maker(f), float64(f.SizeBytes)/1e9, ask)
		text, err := bufio.NewReader(in).ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		given = strings.TrimSpace(text)
	}
	if given != want {
		return &device.RefusedError{What: fmt.Sprintf("%s: that is not its %s; nothing was written", f.Dir, what), Hint: "look at `lsblk -o NAME,SERIAL,MODEL`"}
	}
	return nil
}

// maker is what is known of who made a disk, with a comma behind it.
func maker(f *device.Facts) string {
	if name := strings.TrimSpace(f.Vendor + " " + f.Model); name != "" {
		return name + ", "
	}
	return ""
}
