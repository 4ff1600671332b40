package api

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5/middleware"
)

// accessLog logs one line for every request. It omits query, headers and bodies, which may
// contain what a user typed.
func (a *API) accessLog(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		ww := middleware.NewWrapResponseWriter(w, r.ProtoMajor)
		c := callOf(r)
		defer func() {
			a.Log.LogAttrs(r.Context(), slog.LevelInfo, "request",
				slog.String("component", "api"),
				slog.String("request_id", c.id),
				slog.String("method", r.Method),
				slog.String("route", c.route),
				slog.Int("status", ww.Status()),
				slog.Int("bytes", ww.BytesWritten()),
				slog.Duration("dur", time.Since(began)),
			)
			if c.exchange != nil {
				a.auditRequest(r, ww, time.Since(began))
			}
		}()
		next.ServeHTTP(ww, r)
	})
}
