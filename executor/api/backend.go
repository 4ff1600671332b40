package api

import (
	"net/http"
	"time"

	"colabrelay/executor/kernel"
)

// backendWait is how long a request waits while the executor is starting, which takes less
// than a second on a warm machine. A relay repeats refused requests.
const backendWait = 10 * time.Second

// awaitBackend lets requests wait for Attach.
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
