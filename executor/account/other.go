//go:build !linux

package account

import (
	"errors"
	"os/exec"
	"syscall"
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

// OwnSession makes a process the leader of a new session. Only Linux can also end it with the
// executor; elsewhere ipykernel itself notices that its parent is gone.
func OwnSession() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
