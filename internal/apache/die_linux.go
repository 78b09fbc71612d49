package apache

import (
	"os/exec"
	"syscall"
)

// dieWithParent lets the kernel kill the command's process when this one dies. Ctrl-C reaches this one only.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
