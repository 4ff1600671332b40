//go:build !linux

package account

import (
	"errors"
	"os/exec"
)

// Only Linux lets a thread have the rights of another user, so Find returns no User, and
// the methods are for a nil *User only.

func (u *User) check() error                                { return errors.ErrUnsupported }
func (u *User) Do(f func())                                 { f() }
func (u *User) Start(cmd *exec.Cmd) error                   { return cmd.Start() }
func (u *User) start(cmd *exec.Cmd, mark int) error         { return cmd.Start() }
func (u *User) EndKernel() error                            { return nil }
func (u *User) EndAll() error                               { return nil }
func (u *User) CheckOutOfReach(path string) (string, error) { return path, nil }
func (u *User) CanRead(path string) bool                    { return false }
func (u *User) CheckCanWrite(folder string) error           { return nil }
func highestGroup() int                                     { return 0 }
