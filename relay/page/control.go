package page

import (
	"encoding/json"
	"net/http"
	"strings"
)

// The paths by which another process of this user asks about a page.
const (
	controlStatus = "/control/status"
	controlClose  = "/control/close"
)

// control lets another process of this user, such as "colab-relay page close", ask about the
// page. The secret is in a file that only this user can read.
type control struct {
	secret string // "" lets nobody
	path   string // of the file
}

// handles reports whether a request shows the secret. All others get the answer of a path
// that does not exist. No browser can send such a request.
func (c *control) handles(r *http.Request, port int) bool {
	headers := r.Header.Values("Authorization")
	return c.secret != "" && strings.HasPrefix(r.URL.Path, "/control/") && checkTarget(r, port) == nil &&
		len(r.Header.Values("Origin")) == 0 && len(headers) == 1 && sameSecret(headers[0], "Bearer "+c.secret)
}

func (s *server) serveControl(w http.ResponseWriter, r *http.Request) {
	switch r.Method + " " + r.URL.Path {
	case "GET " + controlStatus:
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(s.page.State()) // the other process may be gone
	case "POST " + controlClose:
		w.WriteHeader(http.StatusNoContent)
		_ = http.NewResponseController(w).Flush() // before the connection ends
		go s.page.stop(s)                         // waits for this request
	default:
		http.NotFound(w, r)
	}
}
