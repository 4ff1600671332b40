package api

import "colabrelay/shared/contract"

// withSessionEnd is an execution's answer with how long the VM still lives, so that whoever
// follows a run learns in time what to save. It is looked at last: a wait may have
// been ended by the executor's own end.
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
