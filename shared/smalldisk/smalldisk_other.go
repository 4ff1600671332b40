//go:build !linux

package smalldisk

import (
	"errors"
	"os"
	"os/exec"
)

// Isolate does nothing.
func Isolate(*exec.Cmd) {}

// Mount returns errors.ErrUnsupported.
func Mount(string, int) error { return errors.ErrUnsupported }

// Unmount returns errors.ErrUnsupported.
func Unmount(string) error { return errors.ErrUnsupported }

// FillWith returns errors.ErrUnsupported.
func FillWith(*os.File) error { return errors.ErrUnsupported }
