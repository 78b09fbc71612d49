package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is the release, set at build time with -ldflags "-X main.version=v0.3.0".
var version = "dev"

type versionInfo struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Dirty   bool   `json:"dirty,omitempty"`
	Go      string `json:"go"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
}

func buildVersion() versionInfo {
	v := versionInfo{Version: version, Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				v.Commit = s.Value
			case "vcs.modified":
				v.Dirty = s.Value == "true"
			}
		}
	}
	return v
}

// String is the version on one line.
func (v versionInfo) String() string {
	commit := v.Commit
	if len(commit) > 12 {
		commit = commit[:12]
	}
	if v.Dirty {
		commit += "-dirty"
	}
	if commit != "" {
		commit = " commit " + commit
	}
	return fmt.Sprintf("bindery %s%s %s %s/%s", v.Version, commit, v.Go, v.OS, v.Arch)
}

func newVersionCommand() *cobra.Command {
	var output outputFormat
	c := &cobra.Command{
		Use:   "version",
		Short: "Print the version of this binary",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			v := buildVersion()
			if output == outputJSON {
				return printJSON(c.OutOrStdout(), v)
			}
			_, err := fmt.Fprintln(c.OutOrStdout(), v)
			return err
		},
	}
	addOutputFlag(c, &output)
	return c
}
