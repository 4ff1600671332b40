package vm

import (
	"errors"
	"fmt"
)

// Errors of backends. For ErrNoneFree and ErrNotEligible the next accelerator is tried.
// ErrQuota, ErrDenied and ErrTooMany end the attempt.
var (
	ErrNoneFree    = errors.New("no VM of this kind is free")
	ErrNotEligible = errors.New("this account may not start a VM of this kind")
	ErrQuota       = errors.New("the account's usage limit is reached")
	ErrDenied      = errors.New("this account is not allowed to start VMs")
	ErrTooMany     = errors.New("the account has reached its limit of running VMs")
	ErrNotLoggedIn = errors.New("not logged in to Google")
	ErrExists      = errors.New("a VM with this id exists already")
	ErrGone        = errors.New("the VM does not exist")
)

// Errors of the Manager.
var (
	ErrNotEnabled   = errors.New("starting VMs is not enabled on this computer")
	ErrUnknown      = errors.New("unknown VM")
	ErrNotOurs      = errors.New("this computer did not start the VM")
	ErrNameTaken    = errors.New("the name is in use")
	ErrOther        = errors.New("a VM of another kind runs under this name")
	ErrTooManyKept  = errors.New("too many VMs are on record")
	ErrNoTunnel     = errors.New("no way to reach the VM's executor is set up")
	ErrLaunch       = errors.New("the executor is not running on the VM")
	ErrUnreachable  = errors.New("the VM's executor does not answer")
	ErrNotConfirmed = errors.New("it is not certain yet that the VM is gone")
	ErrBadRequest   = errors.New("wrong argument")
	ErrInterrupted  = errors.New("the VM may exist")
	ErrStopped      = errors.New("the VM is being stopped")
)

// StartingError means that the caller stopped waiting. The start continues as long as this
// process runs; the same request waits for it again.
type StartingError struct {
	Name, Step string
}

func (e *StartingError) Error() string {
	return fmt.Sprintf("VM %q is still starting: %s", e.Name, e.Step)
}

// ExecError is an exception of the code that Exec ran.
type ExecError struct {
	Name  string // the exception's class
	Value string // its text, clipped by the backend to 1,000 bytes
}

func (e *ExecError) Error() string {
	return fmt.Sprintf("the code on the VM raised %s: %s", e.Name, e.Value)
}
