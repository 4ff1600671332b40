package api

import (
	"context"
	"net/http"
	"time"

	"colabrelay/shared/contract"
)

// restartTimeout is enough to end one kernel and start the next on a cold disk. It is
// shorter than writeTimeout.
const restartTimeout = 2 * time.Minute

func (a *API) kernelStatus(*http.Request) (any, error) {
	return a.kernelNow(), nil
}

// kernelNow is the kernel's status. Only the queue knows whether the kernel runs code.
func (a *API) kernelNow() contract.Kernel {
	k := a.Kernel.Status()
	if k.Status == contract.KernelIdle && a.Queue.Busy() {
		k.Status = contract.KernelBusy
	}
	return k
}

// restartKernel continues if the caller disconnects, because half a restart is useless. If
// the request names an earlier kernel, that one has been replaced already, or is being
// replaced: the answer is then its successor.
func (a *API) restartKernel(r *http.Request) (any, error) {
	var intended contract.KernelRef
	if err := decode(r, &intended); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), restartTimeout)
	defer cancel()
	if err := a.Kernel.Restart(ctx, intended.KernelID); err != nil {
		return nil, err
	}
	return a.kernelNow(), nil
}
