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
	ErrDenied      = errors.New("Google refuses to start VMs for this account")
	ErrTooMany     = errors.New("the account runs as many VMs as it may")
	ErrNotLoggedIn = errors.New("not logged in to Google")
	ErrNotEnabled  = errors.New("VMs are not enabled on this computer")
	ErrExists      = errors.New("a VM with this id exists already")
	ErrGone        = errors.New("the VM does not exist")
	ErrUnknown     = errors.New("unknown VM")
)

// ExecError is an exception of the code that Exec ran.
type ExecError struct {
	Name  string // the exception's class
	Value string // its text, clipped by the backend to 1,000 bytes
}

func (e *ExecError) Error() string {
	return fmt.Sprintf("the code on the VM raised %s: %s", e.Name, e.Value)
}
