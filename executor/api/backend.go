package api

import (
	"net/http"
	"time"

	"colabrelay/executor/kernel"
)

// backendWait is how long a request is held while the executor is still starting.
// A warm machine takes under a second; a relay repeats what is refused.
const backendWait = 10 * time.Second

// awaitBackend holds requests until Attach.
func (a *API) awaitBackend(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := a.backendReady(r); err != nil {
			a.fail(w, r, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (a *API) backendReady(r *http.Request) error {
	select {
	case <-a.attached:
		return nil
	default:
	}
	done, err := a.wait(r)
	if err != nil {
		return err
	}
	defer done()
	timer := time.NewTimer(backendWait)
	defer timer.Stop()
	select {
	case <-a.attached:
		return nil
	case <-timer.C:
		return kernel.ErrStarting
	case <-r.Context().Done():
		return r.Context().Err()
	}
}
