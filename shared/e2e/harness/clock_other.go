//go:build !(linux && amd64)

package harness

import (
	"errors"
	"os/exec"
	"time"
)

var errClock = errors.New("the clock of a program can be set on Linux on amd64 only")

func startWithClock(*exec.Cmd, time.Duration, func() error) error { return errClock }

// SetClock sets the wall clock of a program that was started with a ClockOffset.
func SetClock(int, time.Duration) error { return errClock }
