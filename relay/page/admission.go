package page

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// subprotocol is what Colab's page offers and expects back; without the echo it drops the
// connection.
const subprotocol = "mcp"

// origins are the pages whose connections are accepted.
var origins = []string{"https://colab.research.google.com", "https://colab.google.com"}

// refusal is why a connection was refused.
type refusal struct {
	status int
	why    string // in fixed words, for the log and the person
}

func (r *refusal) write(w http.ResponseWriter) { http.Error(w, r.why, r.status) }

// checkTarget refuses requests that a browser's WebSocket does not send: those with a body,
// and those that name their host twice.
func checkTarget(r *http.Request, port int) *refusal {
	if r.ContentLength != 0 || len(r.TransferEncoding) > 0 {
		return &refusal{http.StatusBadRequest, "the request has a body"}
	}
	if r.URL.Scheme != "" || r.URL.Host != "" || !strings.HasPrefix(r.RequestURI, "/") {
		return &refusal{http.StatusBadRequest, "the request names its target in another form than a path"}
	}
	return checkHost(r, port)
}

// checkHost refuses names that lead to this computer by a trick of DNS.
func checkHost(r *http.Request, port int) *refusal {
	number := strconv.Itoa(port)
	if !slices.Contains([]string{"localhost:" + number, "127.0.0.1:" + number, "[::1]:" + number}, r.Host) {
		return &refusal{http.StatusForbidden, "the request is for another host"}
	}
	return nil
}

// checkTab refuses whatever does not come from the page that was opened with this token.
func checkTab(r *http.Request, token string) *refusal {
	if got := r.Header.Values("Origin"); len(got) != 1 || !slices.Contains(origins, got[0]) {
		return &refusal{http.StatusForbidden, "the request does not come from Colab's page"}
	}
	if why := checkToken(r, token); why != nil {
		return why
	}
	if !offers(r.Header.Values("Sec-WebSocket-Protocol"), subprotocol) {
		return &refusal{http.StatusBadRequest, `the request does not offer the sub-protocol "mcp"`}
	}
	return nil
}

// checkToken wants the token exactly once, in the query or as a bearer.
func checkToken(r *http.Request, token string) *refusal {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return &refusal{http.StatusForbidden, "the query has no valid form"}
	}
	tokens, headers := query["access_token"], r.Header.Values("Authorization")
	switch {
	case len(tokens)+len(headers) == 0:
		return &refusal{http.StatusUnauthorized, "there is no token"}
	case len(tokens)+len(headers) > 1:
		return &refusal{http.StatusForbidden, "there is more than one token"}
	case len(headers) == 1:
		bearer, ok := strings.CutPrefix(headers[0], "Bearer ")
		if !ok || bearer == "" || strings.ContainsAny(bearer, " \t,") {
			return &refusal{http.StatusBadRequest, "the authorization has no valid form"}
		}
		tokens = []string{bearer}
	}
	if !sameSecret(tokens[0], token) {
		return &refusal{http.StatusForbidden, "the token is wrong, as in a page that was opened earlier"}
	}
	return nil
}

// offers reports whether a header with comma-separated values has this one.
func offers(headers []string, want string) bool {
	for _, header := range headers {
		for offered := range strings.SplitSeq(header, ",") {
			if strings.Trim(offered, " \t") == want {
				return true
			}
		}
	}
	return false
}
