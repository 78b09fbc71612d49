package session

import (
	"os/exec"
	"syscall"
)

// endWithParent has the system end a process when this one dies, however it dies.
func endWithParent(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM} }
