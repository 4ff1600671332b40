package remoterun

import (
	"errors"

	"colabrelay/shared/contract"
)

// checkKernel warns if the kernel is not the one that people on this computer last used,
// and records it. id is empty as long as the run has no kernel.
func (r *run) checkKernel(id string) {
	if id == "" || r.LastSeen.Load == nil {
		return
	}
	before := r.LastSeen.Load(r.Runtime)
	now := before.Updated(r.instance, id)
	// Recorded even if unchanged: an agent may have recorded another kernel as the newest.
	r.LastSeen.Save(r.Runtime, now)
	switch {
	case before.KernelID == "" || before.KernelID == id:
	case before.InstanceID != "" && before.InstanceID != now.InstanceID:
		r.out.note("this is a new kernel on a new VM: the variables, functions and imports of the old one are gone, and so are its files, except those on Drive")
	default:
		r.out.note("this is a new kernel: the variables, functions and imports of the old one are gone")
	}
}

// explain replaces an error that means that a new VM has taken over the address.
func (r *run) explain(err error) error {
	refused, ok := errors.AsType[*contract.Error](err)
	if !ok {
		return err
	}
	unknown := refused.Code == contract.CodeNotFound && r.instance != "" && r.Client.InstanceID() != r.instance
	if !unknown && refused.Code != contract.CodeNewInstance {
		return err
	}
	return &contract.Error{
		Code:    contract.CodeNewInstance,
		Message: "a new VM has taken over this address; the code was not run again there, and the variables of the old VM are gone",
		Hint:    "run the setup code again, then this command",
	}
}

func isNewInstance(err error) bool {
	refused, ok := errors.AsType[*contract.Error](err)
	return ok && refused.Code == contract.CodeNewInstance
}
