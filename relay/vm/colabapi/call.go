package colabapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"

	"colabrelay/relay/client"
	"colabrelay/relay/plain"
	"colabrelay/relay/vm"
	"colabrelay/shared/bounded"
)

const (
	// maxAnswer bounds an answer of the API; one of a thousand VMs with their tokens has 3 MB.
	maxAnswer = 8 << 20
	// callTimeout bounds one attempt of a call, in addition to the time that the API was asked
	// to wait.
	callTimeout = 30 * time.Second
	// callTries and retryLimit bound the attempts of one call.
	callTries  = 5
	retryLimit = 90 * time.Second
	// maxRetryAfter is the longest pause that an answer may ask for. An hour would look like
	// a hang; the error then says what to do.
	maxRetryAfter = 30 * time.Second
)

// call is a call of the API. Every one may be repeated: a VM's creation by its requestId.
type call struct {
	doing  string // for errors, such as "start a VM"
	method string
	path   string
	query  url.Values
	body   any // nil for none
	wait   time.Duration
}

// do sends a call, again if Google is overloaded or gave no answer, and decodes the answer
// into out unless that is nil. It returns the time by Google's clock, zero if unknown.
func (b *Backend) do(ctx context.Context, c call, out any) (time.Time, error) {
	res, err := backoff.Retry(ctx, func() (answer, error) { return b.attempt(ctx, c) },
		backoff.WithMaxTries(callTries), backoff.WithMaxElapsedTime(retryLimit))
	if after, ok := errors.AsType[*pause](err); ok {
		err = after.cause
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("%s: %w", c.doing, err)
	}
	if out == nil {
		return res.date, nil
	}
	// null is valid JSON for every type, and would look like an empty list.
	if err := json.Unmarshal(res.body, out); err != nil || !bytes.HasPrefix(bytes.TrimSpace(res.body), []byte("{")) {
		return time.Time{}, fmt.Errorf("%s: Google's answer is not the JSON that the API documents", c.doing)
	}
	return res.date, nil
}

// pause is the error of an attempt after which the service asks to wait.
type pause struct {
	cause error
	until *backoff.RetryAfterError
}

func (p *pause) Error() string { return p.cause.Error() }

// Unwrap lets backoff find how long to wait.
func (p *pause) Unwrap() error { return p.until }

// attempt sends a call once; with a fresh access token a second time, if the first was refused.
func (b *Backend) attempt(ctx context.Context, c call) (answer, error) {
	stale := ""
	for {
		access, err := b.tokens.get(ctx, stale)
		if err != nil {
			return answer{}, backoff.Permanent(err)
		}
		res, err := b.send(ctx, c, access)
		if err != nil {
			return answer{}, retryable(ctx, err)
		}
		if res.status/100 == 2 {
			return res, nil
		}
		failure := parseFailure(res.status, res.body)
		if failure.unauthenticated() && stale == "" {
			stale = access.token
			continue
		}
		return answer{}, b.refusal(failure, res)
	}
}

// refusal says whether a refused call may be repeated.
func (b *Backend) refusal(f *failure, res answer) error {
	err := f.meaning(b.tokens.project())
	switch {
	case !f.temporary():
		return backoff.Permanent(err)
	case res.retryAfter > maxRetryAfter:
		return backoff.Permanent(fmt.Errorf("%w; Google asks to wait %s", err, res.retryAfter.Round(time.Second)))
	case res.retryAfter > 0:
		return &pause{err, &backoff.RetryAfterError{Duration: res.retryAfter}}
	}
	return err
}

// retryable returns err so that it is tried again, unless the caller's time is over.
func retryable(ctx context.Context, err error) error {
	if ctx.Err() != nil || errors.Is(err, bounded.ErrTooLong) {
		return backoff.Permanent(err)
	}
	return err
}

// answer is an answer of the API.
type answer struct {
	status     int
	body       []byte
	retryAfter time.Duration // zero if none is asked for
	date       time.Time     // Google's clock; zero if unknown
}

func (b *Backend) send(ctx context.Context, c call, access access) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout+c.wait)
	defer cancel()
	req, err := b.newRequest(ctx, c, access)
	if err != nil {
		return answer{}, err
	}
	began := time.Now()
	// The transport is used directly, because http.Client would follow redirects.
	res, err := client.EndingWithContext(b.transport).RoundTrip(req)
	if err != nil {
		b.log.DebugContext(ctx, "called the Colab API", "method", c.method, "path", c.path, "dur", time.Since(began), "err", err.Error())
		return answer{}, fmt.Errorf("no answer from %s: %w", req.URL.Host, err)
	}
	defer res.Body.Close()
	body, err := bounded.ReadAll(res.Body, maxAnswer)
	b.log.DebugContext(ctx, "called the Colab API", "method", c.method, "path", c.path, "status", res.StatusCode, "bytes", len(body), "dur", time.Since(began))
	if err != nil {
		return answer{}, fmt.Errorf("read the answer of %s: %w", req.URL.Host, err)
	}
	date, _ := http.ParseTime(res.Header.Get("Date"))
	return answer{res.StatusCode, body, retryAfter(res.Header.Get("Retry-After"), date), date}, nil
}

func (b *Backend) newRequest(ctx context.Context, c call, access access) (*http.Request, error) {
	var body io.Reader
	if c.body != nil {
		text, err := json.Marshal(c.body)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, c.method, b.site.api()+c.path, body)
	if err != nil {
		return nil, err
	}
	req.URL.RawQuery = c.query.Encode()
	req.Header.Set("Authorization", "Bearer "+access.token)
	req.Header.Set("User-Agent", "colab-relay")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if access.quotaProject != "" { // unverified: other Google APIs want it from application default credentials
		req.Header.Set("X-Goog-User-Project", access.quotaProject)
	}
	return req, nil
}

// retryAfter reads the header of that name: seconds, or a time by the server's clock.
func retryAfter(text string, date time.Time) time.Duration {
	if seconds, err := strconv.Atoi(strings.TrimSpace(text)); err == nil {
		return time.Duration(min(max(seconds, 0), 24*3600)) * time.Second
	}
	at, err := http.ParseTime(text)
	if err != nil || date.IsZero() {
		return 0
	}
	return min(max(at.Sub(date), 0), 24*time.Hour)
}

// gone reports whether err is the API's own answer that there is no such VM.
func gone(err error) bool { return errors.Is(err, vm.ErrGone) }

// Codes of google.rpc.Code.
const (
	codeInvalidArgument    = 3
	codeAlreadyExists      = 6
	codePermissionDenied   = 7
	codeResourceExhausted  = 8
	codeFailedPrecondition = 9
)

// rpcStatus is google.rpc.Status, the error of a call and of an Operation.
type rpcStatus struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Status  string `json:"status"`
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
	text := plain.Line(s.Message)
	if r := s.reason(); r != "" {
		text = plain.Line(r) + ": " + text
	}
	if text == "" {
		return "no reason was given"
	}
	return fmt.Sprintf("Google says %q", text[:min(len(text), 500)])
}

// failure is an answer of the API that refuses a call.
type failure struct {
	status int
	rpc    rpcStatus // zero if the answer is not one of the API
}

func parseFailure(status int, body []byte) *failure {
	f := &failure{status: status}
	var page struct {
		Error rpcStatus `json:"error"`
	}
	if json.Unmarshal(body, &page) == nil && page.Error.Code == status {
		f.rpc = page.Error
	}
	return f
}

func (f *failure) unauthenticated() bool { return f.status == http.StatusUnauthorized }

// console is where the Colab API is enabled for a project.
const console = "https://console.cloud.google.com/apis/library/colaboratory.googleapis.com"

// temporary reports whether the same call may succeed later.
func (f *failure) temporary() bool {
	return f.rpc.class() == nil && (f.status == http.StatusTooManyRequests || f.status/100 == 5 && f.status != http.StatusNotImplemented)
}

// meaning returns the error that callers know. A status counts only in the API's own form,
// because login pages of hotels answer 404 too.
func (f *failure) meaning(project string) error {
	said := f.rpc.said()
	if class := f.rpc.class(); class != nil {
		return fmt.Errorf("%w (%s)", class, said)
	}
	switch {
	case f.rpc.Code == 0:
		return fmt.Errorf("HTTP %d, in a form that the Colab API does not use: something between this computer and Google may have answered", f.status)
	case f.status == http.StatusUnauthorized:
		return fmt.Errorf("%w: Google refuses a fresh token (%s): run `colab-relay vm login` again", vm.ErrNotLoggedIn, said)
	case f.rpc.reason() == "ACCESS_TOKEN_SCOPE_INSUFFICIENT":
		return fmt.Errorf("%w: the login does not include Colab (%s): run `colab-relay vm login` again and allow access to Colab", vm.ErrNotLoggedIn, said)
	case f.rpc.reason() == "SERVICE_DISABLED":
		return fmt.Errorf("%w: the Colab API is not enabled in the Google Cloud project%s: enable it at %s and wait some minutes; if the page does not offer it, the project is not on Google's list for this beta (%s)", vm.ErrDenied, inProject(project), console, said)
	case f.rpc.reason() == "USER_PROJECT_DENIED":
		return fmt.Errorf("%w: this login may not use the quota of the project%s: set another one with `gcloud auth application-default set-quota-project` (%s)", vm.ErrDenied, inProject(project), said)
	case f.status == http.StatusForbidden:
		return fmt.Errorf("%w: the project%s may not use the Colab API, which is in beta and needs Google's permission (%s)", vm.ErrDenied, inProject(project), said)
	case f.status == http.StatusNotFound:
		return fmt.Errorf("%w (HTTP 404): %s", errNotFound, said)
	case f.status == http.StatusConflict && f.rpc.Status == "ALREADY_EXISTS": // the others are ABORTED
		return fmt.Errorf("%w (%s)", vm.ErrExists, said)
	case f.status == http.StatusBadRequest && f.rpc.Status == "FAILED_PRECONDITION":
		return fmt.Errorf("%w (HTTP 400): %s", errPrecondition, said)
	case f.status == http.StatusTooManyRequests:
		return fmt.Errorf("the limit on calls per minute of the Google Cloud project%s is reached: wait a minute and try again (%s)", inProject(project), said)
	}
	switch f.status {
	case http.StatusBadRequest:
		return fmt.Errorf("%w (HTTP 400): %s", errInvalidArgument, said)
	case http.StatusNotImplemented:
		return fmt.Errorf("%w (HTTP 501): %s", errUnimplemented, said)
	}
	return fmt.Errorf("HTTP %d: %s", f.status, said)
}

// Refusals that this package itself acts on.
var (
	errInvalidArgument = errors.New("the API does not accept the request")
	errPrecondition    = errors.New("the API cannot do this now")
	errNotFound        = errors.New("the API knows nothing of that name")
	errUnimplemented   = errors.New("the API does not offer this call")
)

func inProject(project string) string {
	if project == "" {
		return ""
	}
	return fmt.Sprintf(" %q", plain.Line(project))
}

// class returns the error that a documented reason stands for; nil for other reasons.
func (s rpcStatus) class() error {
	switch s.reason() {
	case "TOO_MANY_ACTIVE_RUNTIMES":
		return vm.ErrTooMany
	case "QUOTA_EXCEEDED_USAGE_TIME":
		return vm.ErrQuota
	case "DENYLISTED":
		return vm.ErrDenied
	}
	return nil
}

// refused returns the error of an Operation that was to start a VM with an accelerator.
func (s rpcStatus) refused(accelerator string) error {
	class := func() error {
		switch {
		case s.class() != nil:
			return s.class()
		case s.Code == codeAlreadyExists:
			return vm.ErrExists
		case s.Code == codePermissionDenied:
			return vm.ErrDenied
		case s.Code == codeFailedPrecondition && accelerator != noAccelerator:
			return vm.ErrNoneFree // which has no reason of its own
		case s.Code == codeInvalidArgument && accelerator != noAccelerator: // unverified
			return vm.ErrNotEligible
		case s.Code == codeResourceExhausted: // unverified: without a known reason
			return vm.ErrQuota
		}
		return nil
	}()
	if class == nil {
		return fmt.Errorf("the VM could not be started (code %d): %s", s.Code, s.said())
	}
	return fmt.Errorf("%w (%s)", class, s.said())
}

const (
	// waitStep is how long one call waits for an Operation; the server may answer earlier.
	waitStep = 60 * time.Second
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

var operationPattern = regexp.MustCompile(`^operations/[A-Za-z0-9._-]{1,200}$`)

// wait waits until a VM was started or refused.
func (b *Backend) wait(ctx context.Context, op operation, accelerator string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, waitLimit, fmt.Errorf("start a VM: Google did not finish in %s: `colab-relay vm list` shows whether it comes", waitLimit))
	defer cancel()
	suffix := ":wait"
	for !op.Done {
		name := op.Name
		if !operationPattern.MatchString(name) || strings.Contains(name, "..") {
			return errors.New("start a VM: Google's answer names no operation to wait for")
		}
		c := call{doing: "wait for the VM", method: http.MethodGet, path: "/v1/" + name + suffix}
		if suffix != "" {
			c.query, c.wait = url.Values{"timeout": {fmt.Sprintf("%.0fs", waitStep.Seconds())}}, waitStep
		}
		op = operation{}
		_, err := b.do(ctx, c, &op)
		switch {
		case errors.Is(err, errUnimplemented) && suffix != "":
			suffix = "" // a plain look instead
		case err != nil && ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return err
		}
		if op.Name == "" {
			op.Name = name
		}
		if !op.Done {
			if err := pauseFor(ctx, waitPause); err != nil {
				return err
			}
		}
	}
	if op.Error != nil {
		return fmt.Errorf("start a VM: %w", op.Error.refused(accelerator))
	}
	return nil
}

// refusedSpec makes a refused request for an accelerator the next accelerator's turn. Whether
// Google refuses one like this, and not by an Operation, is unverified.
func refusedSpec(err error, key specKey) error {
	switch {
	case key.Accelerator == noAccelerator:
		return err
	case errors.Is(err, errInvalidArgument):
		return fmt.Errorf("%w: %v", vm.ErrNotEligible, err)
	case errors.Is(err, errPrecondition):
		return fmt.Errorf("%w: %v", vm.ErrNoneFree, err)
	}
	return err
}

// pauseFor waits for d or until ctx ends.
func pauseFor(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
