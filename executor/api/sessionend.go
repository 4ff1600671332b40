package api

import "colabrelay/shared/contract"

// withSessionEnd adds the remaining time of the VM's session to an execution, so that a
// caller can save results in time. The remaining time is determined after the wait, because
// the executor may have shut down while the caller waited.
func (a *API) withSessionEnd(x contract.Execution, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	x.SessionMinutesLeft = a.sessionMinutesLeft()
	return x, nil
}

func (a *API) sessionMinutesLeft() *float64 {
	select {
	case <-a.Ending:
		return new(float64)
	default:
		return a.Prober.SessionMinutesLeft()
	}
}
