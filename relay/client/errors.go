package client

import (
	"context"
	"errors"
	"fmt"

	"colabrelay/relay/plain"
	"colabrelay/shared/contract"
)

// Kind says what is wrong between relay and executor. A refusal by an executor is a
// *contract.Error instead.
type Kind string

const (
	KindUnreachable   Kind = "unreachable"    // no connection, a broken one, or no TLS
	KindNoSuchHost    Kind = "no_such_host"   // the name does not resolve
	KindTunnelOffline Kind = "tunnel_offline" // the tunnel's service says that no executor is online at this address
	KindTunnelQuota   Kind = "tunnel_quota"   // the tunnel's plan is used up
	KindTunnelError   Kind = "tunnel_error"   // the tunnel's service reports another problem
	KindRateLimited   Kind = "rate_limited"   // the executor's own limit on requests without a valid signature
	KindWrongSecret   Kind = "wrong_secret"   // an executor that does not know our key
	KindNotExecutor   Kind = "not_executor"   // something else answers there
	KindIntercepted   Kind = "intercepted"    // something else answers where the executor did before
	KindProxy         Kind = "proxy_refused"  // a proxy in this computer's settings refuses
	KindTooLarge      Kind = "proxy_limit"    // a proxy in front of the executor refuses the size of a request
	KindBadAnswer     Kind = "bad_answer"     // an answer that was changed or forged in transit
	KindWrongProtocol Kind = "wrong_protocol" // an executor of another release
	KindTimeout       Kind = "timeout"        // no answer, or only part of one, in time
)

// Kinds lists every kind, for tables that must have all of them.
var Kinds = []Kind{
	KindUnreachable, KindNoSuchHost, KindTunnelOffline, KindTunnelQuota, KindTunnelError,
	KindRateLimited, KindWrongSecret, KindNotExecutor, KindIntercepted, KindProxy, KindTooLarge, KindBadAnswer, KindWrongProtocol, KindTimeout,
}

// Error is the error of a call that an executor did not answer.
type Error struct {
	Kind    Kind
	Message string // what happened; no secret, no query
	Hint    string // the next step, for a model and a person
	Err     error  // the cause, for errors.Is; may be nil

	// sent reports that the executor may have received the request.
	sent bool
	// mayRun reports, of a submit, that its code may run.
	mayRun bool
	// gaveUp reports that a proxy in front of the executor did not wait for its answer.
	gaveUp bool
	// shrinks is the result of Shrinks.
	shrinks bool
}

// Error returns the message without the hint.
func (e *Error) Error() string { return string(e.Kind) + ": " + e.Message }

// Unwrap returns the cause, such as context.Canceled or context.DeadlineExceeded.
func (e *Error) Unwrap() error { return e.Err }

// startAgain is the end of most hints.
const startAgain = "start the executor again (on Colab: run its cell again); if it prints a pairing string, run `colab-relay pair` on this computer and paste it there."

var hints = map[Kind]string{
	KindUnreachable:   "Check that this computer is online and that the executor is running: " + startAgain,
	KindNoSuchHost:    "Check that this computer is online. If the address is an old one, " + startAgain,
	KindTunnelOffline: "The VM has ended or the executor was stopped: " + startAgain,
	KindTunnelQuota:   "See the usage page of the tunnel's account. Wait for the next month, use another plan or account, or start the executor with another --tunnel.",
	KindTunnelError:   "Try again in a minute. If the error persists, " + startAgain,
	KindRateLimited:   "Wait a minute, then try again. If that does not help, the secret is wrong: run `colab-relay pair` on this computer and paste what the executor printed.",
	KindWrongSecret:   "This computer and the executor have different secrets: run `colab-relay pair` on this computer and paste what the executor printed, or set COLAB_SECRET to the value that EXECUTOR_SECRET has on the VM. If they are the same, a proxy changes the requests: try another network.",
	KindNotExecutor:   "If this network has a login page, open any page in a browser and log in. Otherwise check COLAB_URL, or pair again: " + startAgain,
	KindIntercepted:   "A login page of this network, a filter or a proxy answers in place of the executor: open any page in a browser on this computer and log in, or try another network. If the VM has ended, " + startAgain,
	KindProxy:         "Check HTTPS_PROXY, HTTP_PROXY and NO_PROXY in the relay's environment.",
	KindTooLarge:      "Raise the limit of that proxy to 16 MiB (nginx: client_max_body_size 16m), or send less at a time: put data into a file on the VM (`colab-relay put`).",
	KindBadAnswer:     "A proxy or virus scanner between this computer and the VM changes the traffic: try another network, or an address with https.",
	KindWrongProtocol: "Use a relay and an executor of the same release.",
	KindTimeout:       "Try again. If the error persists, look at the executor's output (on Colab: at its cell); if it has ended, " + startAgain,
}

// problem returns an Error of kind with its usual hint.
func problem(kind Kind, message string, err error) *Error {
	return &Error{Kind: kind, Message: plain.Line(message), Hint: hints[kind], Err: err}
}

// problemWithHint returns an Error of kind with a special hint.
func problemWithHint(kind Kind, message, hint string, err error) *Error {
	e := problem(kind, message, err)
	e.Hint = hint
	return e
}

// refusal returns the executor's own error in err; nil if there is none.
func refusal(err error) *contract.Error {
	refused, _ := errors.AsType[*contract.Error](err)
	return refused
}

// kindOf returns the Kind of err; empty if err is no Error.
func kindOf(err error) Kind {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	return ""
}

// mayHaveArrived reports whether the executor may have acted on the attempt that ended with
// err. A signed refusal means that it did not, except replayed: then the request arrived
// twice, and the answer to the first one was lost. A rate_limited with the executor's time may
// replace a replayed.
func mayHaveArrived(err error) bool {
	if refused := refusal(err); refused != nil {
		return refused.Code == contract.CodeReplayed || refused.Code == contract.CodeRateLimited && refused.ServerTime > 0
	}
	e, ok := errors.AsType[*Error](err)
	return ok && e.sent
}

// ended returns the error of a call whose ctx ended: that of the last attempt if there is
// one, because it says more than that time ran out. Only replayed does not: it follows from a
// lost answer.
func ended(ctx context.Context, last error) error {
	cause := context.Cause(ctx)
	refused := refusal(last)
	switch {
	case refused != nil && refused.Code == contract.CodeReplayed: // it says nothing about the first answer
		return problem(KindTimeout, "no answer arrived in time", fmt.Errorf("%w; last attempt: %v", cause, last))
	case refused != nil || errors.Is(last, cause):
		return last
	}
	if e, ok := errors.AsType[*Error](last); ok {
		fresh := *e
		fresh.Err = fmt.Errorf("%w; last attempt: %w", cause, last)
		return &fresh
	}
	return problem(KindTimeout, "no answer arrived in time", cause)
}
