package main

import (
	"os/exec"
	"syscall"
)

// own gives a command a process group of its own, so that Ctrl-C reaches this program only, which then ends its children in
// order; and has the kernel kill it when this program dies otherwise. A command of a context that ends is killed with all it has
// started.
func own(cmd *exec.Cmd) *exec.Cmd {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if cmd.Cancel != nil {
		cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	}
	return cmd
}
