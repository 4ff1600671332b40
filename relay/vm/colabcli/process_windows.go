package colabcli

import (
	"os"
	"syscall"
)

// Google's program does not run on Windows, and Backend.program says so before any of these
// is used.

func ownSession() *syscall.SysProcAttr { return nil }

func killGroup(p *os.Process) error { return p.Kill() }

func tryLock(*os.File) (bool, error) { return true, nil }
