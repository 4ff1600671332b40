package colabapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"colabrelay/relay/plain"
	"colabrelay/relay/vm"
)

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
