package api

import (
	"context"
	"net/http"
	"time"

	"colabrelay/executor/probe"
	"colabrelay/shared/auth"
	"colabrelay/shared/contract"
)

// openHealth answers unsigned GET and HEAD requests of the health path, the only ones open
// to everybody. It passes all others to next, including signed ones, whose answers must be
// sealed.
func (a *API) openHealth(next http.Handler) http.Handler {
	health := a.json(a.health)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		signed := len(r.Header[auth.HeaderSignature]) > 0
		if r.URL.Path != contract.PathHealth || (r.Method != http.MethodGet && r.Method != http.MethodHead) || signed {
			next.ServeHTTP(w, r)
			return
		}
		if a.withinUnsigned(w, r) {
			closeUnverified(w, r)
			w.Header().Set("Cache-Control", "no-store")
			health(w, r)
		}
	})
}

// health answers with a few figures, the version and the protocol. Anybody may read them,
// so nothing else belongs here.
func (a *API) health(*http.Request) (any, error) {
	mem, err := probe.Memory()
	if err != nil {
		return nil, err
	}
	return contract.Health{
		Status:            "ok",
		UptimeMinutes:     probe.Round(time.Since(a.Started).Minutes(), 1),
		MemoryAvailableGB: probe.InGB(mem.Available),
		MemoryUsedPct:     mem.UsedPct(),
		Version:           a.Version,
		Protocol:          contract.Protocol,
	}, nil
}

// shutdown shuts the executor down after the answer was written: that is when the request's
// context ends. The server then waits for the connection.
func (a *API) shutdown(r *http.Request) (any, error) {
	context.AfterFunc(r.Context(), a.Shutdown)
	return contract.Shutdown{Status: "shutting_down"}, nil
}
