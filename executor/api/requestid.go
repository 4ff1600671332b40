package api

import (
	"context"
	"net/http"

	"github.com/google/uuid"

	"colabrelay/shared/contract"
)

type requestIDKey struct{}

// requestID gives the request an id for logs and error bodies. The caller's own header is
// ignored because it is not signed.
func (a *API) requestID(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := uuid.NewString()
		w.Header().Set(contract.HeaderRequestID, id)
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), requestIDKey{}, id)))
	})
}

func requestIDOf(r *http.Request) string {
	id, _ := r.Context().Value(requestIDKey{}).(string)
	return id
}
