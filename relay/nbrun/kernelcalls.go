package nbrun

import (
	"context"
	"crypto/rand"
	"slices"

	"colabrelay/shared/contract"
	"colabrelay/shared/kernelpy"
)

// anchor runs nothing in the kernel, so that the next cell can follow that: it then runs in no
// other kernel.
func (a *advance) anchor(ctx context.Context) error {
	id := rand.Text()
	e, err := a.vm.Submit(ctx, contract.Submit{RequestID: id, Code: "pass", Unstored: true, TimeoutSeconds: 60, WaitSeconds: 10})
	switch {
	case err != nil:
		return err
	case e.Status != contract.StatusSucceeded:
		return nil // the next cell follows nothing
	case e.KernelID != a.run().KernelID:
		return a.newKernel(ctx, e.KernelID)
	}
	a.record.Life.LastRequestID, a.record.Life.LastExecutionID = id, e.ExecutionID
	return nil
}

// cleanTitle is the first line of the execution of cleanGPU.
const cleanTitle = "# colab-relay: free GPU memory before a retry\n"

// cleanGPU frees the GPU's memory as far as the last exception and the cache hold it. It is no
// more than an attempt: the retry shows whether there is enough memory.
func (a *advance) cleanGPU(ctx context.Context) error {
	call := kernelpy.Call{Function: "cleanup.free_gpu", Delivery: kernelpy.Display}
	for _, withPackage := range []bool{false, true} {
		e, err := a.vm.Submit(ctx, contract.Submit{
			Code: cleanTitle + call.Code(withPackage), Unstored: true, TimeoutSeconds: 60, WaitSeconds: 10,
		})
		if err != nil {
			return err
		}
		missing := func(event contract.Event) bool { return kernelpy.IsMissing(event.Data) }
		if !slices.ContainsFunc(e.Events, missing) {
			return nil
		}
	}
	return nil
}
