package colabapi

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"

	"colabrelay/relay/client"
	"colabrelay/relay/plain"
	"colabrelay/relay/vm"
	"colabrelay/shared/bounded"
	"colabrelay/shared/keep"
	"colabrelay/shared/lazy"
)

const (
	apiURL = "https://colaboratory.googleapis.com"
	// maxAnswer bounds an answer of the API; one of a thousand VMs with their tokens has 3 MB.
	maxAnswer = 8 << 20
	// callTimeout bounds one attempt of a call.
	callTimeout = 30 * time.Second
	// callTries and retryLimit bound the attempts of one call.
	callTries  = 5
	retryLimit = 90 * time.Second
	// maxRetryAfter is the longest pause in seconds that an answer may ask for. An hour would
	// look like a hang; the error then says what to do.
	maxRetryAfter = 30
)

// call is a call of the API. Every one may be repeated: a VM's creation by its requestId.
type call struct {
	doing  string // for errors, such as "start a VM"
	method string
	path   string
	query  url.Values
	body   any // nil for none
}

// do sends a call, again if Google is overloaded or gave no answer, and decodes the answer
// into out unless that is nil.
func (b *Backend) do(ctx context.Context, c call, out any) error {
	text, err := backoff.Retry(ctx, func() ([]byte, error) { return b.attempt(ctx, c) },
		backoff.WithMaxTries(callTries), backoff.WithMaxElapsedTime(retryLimit))
	if err != nil {
		return fmt.Errorf("%s: %w", c.doing, err)
	}
	// null is valid JSON for every type, and would look like an empty list.
	if out != nil && (json.Unmarshal(text, out) != nil || !bytes.HasPrefix(bytes.TrimSpace(text), []byte("{"))) {
		return fmt.Errorf("%s: Google's answer is not the JSON that the API documents", c.doing)
	}
	return nil
}

// attempt sends a call once; with a fresh access token a second time, if the first was refused.
func (b *Backend) attempt(ctx context.Context, c call) ([]byte, error) {
	var refused access
	for {
		login, err := b.access.get(ctx, refused, b.renewAccess)
		if err != nil {
			return nil, backoff.Permanent(err)
		}
		res, text, err := b.send(ctx, c, login)
		switch {
		case err != nil && (ctx.Err() != nil || errors.Is(err, bounded.ErrTooLong)):
			return nil, backoff.Permanent(err)
		case err != nil:
			return nil, fmt.Errorf("no answer from Google: %w", err)
		case res.StatusCode/100 == 2:
			return text, nil
		case res.StatusCode == http.StatusUnauthorized && refused == (access{}):
			refused = login
			continue
		}
		err, again := refusal(res.StatusCode, text, login.project)
		pause, _ := strconv.Atoi(res.Header.Get("Retry-After")) // a date counts as none
		switch {
		case !again:
			return nil, backoff.Permanent(err)
		case pause > maxRetryAfter:
			return nil, backoff.Permanent(fmt.Errorf("%w; Google asks to wait %d s", err, pause))
		case pause > 0:
			return nil, fmt.Errorf("%w (%w)", err, backoff.RetryAfter(pause))
		}
		return nil, err
	}
}

func (b *Backend) send(ctx context.Context, c call, login access) (*http.Response, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	req, err := newRequest(ctx, c.method, apiURL+c.path, c.body)
	if err != nil {
		return nil, nil, err
	}
	req.URL.RawQuery = c.query.Encode()
	req.Header.Set("Authorization", "Bearer "+login.token)
	if login.quotaProject != "" { // unverified: other Google APIs want it from application default credentials
		req.Header.Set("X-Goog-User-Project", login.quotaProject)
	}
	began := time.Now()
	res, text, err := exchange(b.transport, req, maxAnswer)
	log := b.log.With("method", c.method, "path", c.path, "dur", time.Since(began))
	if err != nil {
		log.DebugContext(ctx, "called the Colab API", "err", err)
		return nil, nil, err
	}
	log.DebugContext(ctx, "called the Colab API", "status", res.StatusCode, "bytes", len(text))
	return res, text, nil
}

// newRequest returns a request whose body is JSON; nil for none.
func newRequest(ctx context.Context, method, address string, body any) (*http.Request, error) {
	var content io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		content = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, address, content)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", "colab-relay")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	return req, nil
}

// exchange sends a request and reads its answer, at most limit bytes of it. It follows no
// redirects, as http.Client would.
func exchange(t http.RoundTripper, req *http.Request, limit int64) (*http.Response, []byte, error) {
	res, err := client.EndingWithContext(t).RoundTrip(req)
	if err != nil {
		return nil, nil, err
	}
	defer res.Body.Close()
	text, err := bounded.ReadAll(res.Body, limit)
	return res, text, err
}

// rpcStatus is google.rpc.Status, the error of a call and of an Operation.
type rpcStatus struct {
	Code    int    `json:"code"` // of HTTP for a call, of google.rpc.Code for an Operation
	Message string `json:"message"`
	Status  string `json:"status"` // the name of a call's google.rpc.Code
	Details []struct {
		Reason string `json:"reason"` // of an ErrorInfo
	} `json:"details"`
}

// reason returns the reason of the ErrorInfo; empty without one.
func (s rpcStatus) reason() string {
	for _, d := range s.Details {
		if d.Reason != "" {
			return d.Reason
		}
	}
	return ""
}

// said returns Google's own words, bounded and without control characters.
func (s rpcStatus) said() string {
	return fmt.Sprintf("Google says %q", plain.Clip(strings.TrimPrefix(s.reason()+": "+s.Message, ": "), 500))
}

// Refusals that this package itself acts on.
var (
	errInvalidArgument = errors.New("the API does not accept the request")
	errPrecondition    = errors.New("the API cannot do this now")
	errNotFound        = errors.New("the API knows nothing of that name")
	errUnimplemented   = errors.New("the API does not offer this call")
)

// meaning is what a refusal stands for: an error that callers know, if any, and advice.
type meaning struct {
	err    error
	advice string
}

// meanings are those of the documented reasons, and of the names of google.rpc.Code. What has
// no error here is no answer about the account or the VM, and the call may be tried again.
var meanings = map[string]meaning{
	"TOO_MANY_ACTIVE_RUNTIMES":        {vm.ErrTooMany, ""},
	"QUOTA_EXCEEDED_USAGE_TIME":       {vm.ErrQuota, ""},
	"DENYLISTED":                      {vm.ErrDenied, ""},
	"ACCESS_TOKEN_SCOPE_INSUFFICIENT": {vm.ErrNotLoggedIn, "the login does not include Colab: run `colab-relay vm login` again and allow access to Colab"},
	"SERVICE_DISABLED":                {vm.ErrDenied, "the Colab API is not enabled in the Google Cloud project: enable it at https://console.cloud.google.com/apis/library/colaboratory.googleapis.com and wait some minutes; if the page does not offer it, the project is not on Google's list for this beta"},
	"USER_PROJECT_DENIED":             {vm.ErrDenied, "this login may not use the quota of the project: set another one with `gcloud auth application-default set-quota-project`"},

	"INVALID_ARGUMENT":    {errInvalidArgument, ""},
	"FAILED_PRECONDITION": {errPrecondition, ""},
	"NOT_FOUND":           {errNotFound, ""},
	"ALREADY_EXISTS":      {vm.ErrExists, ""},
	"UNIMPLEMENTED":       {errUnimplemented, ""},
	"UNAUTHENTICATED":     {vm.ErrNotLoggedIn, "Google refuses a fresh token: run `colab-relay vm login` again"},
	"PERMISSION_DENIED":   {vm.ErrDenied, "the project may not use the Colab API, which is in beta and needs Google's permission"},
	"RESOURCE_EXHAUSTED":  {nil, "the limit on calls per minute of the Google Cloud project is reached: wait a minute and try again"},
}

// codes are the keys of meanings for statuses of HTTP, in answers without a name, and for codes
// of google.rpc.Code, the ones below 100.
var codes = map[int]string{
	3: "INVALID_ARGUMENT", 6: "ALREADY_EXISTS", 9: "FAILED_PRECONDITION",
	7: "DENYLISTED", 8: "QUOTA_EXCEEDED_USAGE_TIME", // unverified: without a known reason
	400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND", 429: "RESOURCE_EXHAUSTED", 501: "UNIMPLEMENTED",
}

// refused returns the error that s stands for, which callers know unless it is temporary.
func (s rpcStatus) refused(project string) (err error, known bool) {
	m, ok := meanings[s.reason()]
	if !ok {
		m = meanings[cmp.Or(s.Status, codes[s.Code])]
	}
	said := s.said()
	if project != "" {
		said += fmt.Sprintf("; the project is %q", plain.Line(project))
	}
	text := cmp.Or(m.advice, fmt.Sprintf("code %d", s.Code))
	if m.err == nil {
		return fmt.Errorf("%s (%s)", text, said), false
	}
	return fmt.Errorf("%w: %s (%s)", m.err, text, said), true
}

// refusal is the error of a refused call, and whether the same call may succeed later. A status
// counts only in the API's own form, because login pages of hotels answer 404 too.
func refusal(status int, text []byte, project string) (err error, again bool) {
	var page struct {
		Error rpcStatus `json:"error"`
	}
	again = status == http.StatusTooManyRequests || status/100 == 5
	if json.Unmarshal(text, &page) != nil || page.Error.Code != status {
		return fmt.Errorf("HTTP %d, in a form that the Colab API does not use: something between this computer and Google may have answered", status), again
	}
	err, known := page.Error.refused(project)
	return err, again && !known
}

const (
	// waitStep is how long one call waits for an Operation; the server may answer earlier.
	waitStep = 20 * time.Second
	// waitLimit bounds the wait for a VM. Others saw 3 to 4 seconds (unverified).
	waitLimit = 5 * time.Minute
	// waitPause keeps calls apart when the server does not wait.
	waitPause = time.Second
)

// operation is google.longrunning.Operation.
type operation struct {
	Name  string     `json:"name"`
	Done  bool       `json:"done"`
	Error *rpcStatus `json:"error"`
}

var operationPattern = lazy.Regexp(`^operations/[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}$`)

// wait waits until a VM was started or refused.
func (b *Backend) wait(ctx context.Context, op operation) error {
	ctx, cancel := context.WithTimeoutCause(ctx, waitLimit, fmt.Errorf("start a VM: Google did not finish in %s: `colab-relay vm list` shows whether it comes", waitLimit))
	defer cancel()
	c := call{doing: "wait for the VM", method: http.MethodGet, path: "/v1/" + op.Name + ":wait", query: url.Values{"timeout": {fmt.Sprintf("%.0fs", waitStep.Seconds())}}}
	if !op.Done && !operationPattern().MatchString(op.Name) {
		return errors.New("start a VM: Google's answer names no operation to wait for")
	}
	err := keep.Repeat(ctx, waitPause, func() (bool, error) {
		if op.Done {
			return true, nil
		}
		err := b.do(ctx, c, &op)
		switch {
		case errors.Is(err, errUnimplemented) && c.query != nil:
			c.path, c.query = strings.TrimSuffix(c.path, ":wait"), nil // a plain look instead
			err = nil
		case err != nil && ctx.Err() != nil:
			err = context.Cause(ctx)
		}
		return op.Done, err
	})
	if err != nil || op.Error == nil {
		return err
	}
	err, _ = op.Error.refused("")
	return fmt.Errorf("the VM could not be started: %w", err)
}
