package apache

import (
	"os/exec"
	"syscall"
)

// dieWithParent lets the kernel kill the command's process when this one dies.
func dieWithParent(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
