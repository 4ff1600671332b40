package api

import "net/http"

func (a *API) listFiles(r *http.Request) (any, error) {
	return a.Files.List(r.Context(), r.URL.Query().Get("path"), r.URL.Query().Get("after"))
}
