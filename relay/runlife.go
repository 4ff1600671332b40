package main

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"colabrelay/shared/contract"
)

// sawKernel warns when the kernel is not the one that a run of this computer's person
// last used, and keeps which one it is. One that is not known yet is empty.
func (r *remoteRun) sawKernel(id string) {
	if id == "" || r.lives.Load == nil {
		return
	}
	before := r.lives.Load(r.runtime)
	now := before
	now.InstanceID = cmp.Or(r.instance, before.InstanceID)
	if id != before.KernelID {
		now.KernelID, now.Since = id, time.Now()
	}
	r.lives.Save(r.runtime, now) // though it may be known to people, the newest may be an agent's
	switch {
	case before.KernelID == "" || before.KernelID == id:
	case before.InstanceID != "" && before.InstanceID != now.InstanceID:
		fmt.Fprintln(r.std.err, "relay: the kernel is a new one, on a new VM: variables, functions and imports of the old one are gone, and its files too, except those on Drive")
	default:
		fmt.Fprintln(r.std.err, "relay: the kernel is a new one: variables, functions and imports of the old one are gone")
	}
}

// replaced tells of a new VM in place of what it answers about a run of the old one.
func (r *remoteRun) replaced(err error) error {
	var refused *contract.Error
	if !errors.As(err, &refused) {
		return err
	}
	unknown := refused.Code == contract.CodeNotFound && r.instance != "" && r.client.InstanceID() != r.instance
	if !unknown && refused.Code != contract.CodeNewInstance {
		return err
	}
	return &contract.Error{
		Code:    contract.CodeNewInstance,
		Message: "the VM behind this address is a new one; the code was not run again there, and the variables of the old VM are gone",
		Hint:    "run the set-up code again, then this command",
	}
}

func isNewInstance(err error) bool {
	var refused *contract.Error
	return errors.As(err, &refused) && refused.Code == contract.CodeNewInstance
}
