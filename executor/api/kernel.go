package api

import (
	"context"
	"net/http"
	"time"

	"colabrelay/shared/contract"
)

// restartTimeout bounds the end of one kernel and the start of the next, on a cold
// disk. It fits into writeTimeout.
const restartTimeout = 2 * time.Minute

func (a *API) kernelStatus(*http.Request) (any, error) {
	return a.kernelNow(), nil
}

// kernelNow is the kernel's status; whether it runs code only the queue knows.
func (a *API) kernelNow() contract.Kernel {
	k := a.Kernel.Status()
	if k.Status == contract.KernelIdle && a.Queue.Busy() {
		k.Status = contract.KernelBusy
	}
	return k
}

// restartKernel goes on when the caller goes away: half a restart is no use. A kernel
// that is not the current one was restarted already, or is being: then the answer is
// the one that came after it.
func (a *API) restartKernel(r *http.Request) (any, error) {
	var meant contract.KernelRef
	if err := decode(r, &meant); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), restartTimeout)
	defer cancel()
	if err := a.Kernel.Restart(ctx, meant.KernelID); err != nil {
		return nil, err
	}
	return a.kernelNow(), nil
}
