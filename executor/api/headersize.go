package api

import (
	"net/http"

	"colabrelay/shared/contract"
)

// boundHeaders refuses a request whose request line and headers together exceed
// contract.MaxHeaderBytes. The refusal is unsigned because nothing has been verified yet.
func (a *API) boundHeaders(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if headerBytes(r) > contract.MaxHeaderBytes {
			a.fail(w, r, &refusal{
				Code: contract.CodeTooLarge, Status: http.StatusRequestHeaderFieldsTooLarge,
				Message: "request headers are too large",
				Hint:    "Send at most 16 KiB of headers.",
			})
			return
		}
		next.ServeHTTP(w, r)
	})
}

// headerBytes is the size of the request line and headers as HTTP/1.1 writes them.
func headerBytes(r *http.Request) int {
	n := len(r.Method) + len(r.RequestURI) + len(r.Proto) + len("  \r\n\r\n")
	n += len("Host: \r\n") + len(r.Host)
	for name, values := range r.Header {
		for _, v := range values {
			n += len(name) + len(": \r\n") + len(v)
		}
	}
	return n
}
