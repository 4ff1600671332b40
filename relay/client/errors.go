package client

import (
	"context"
	"errors"
	"fmt"

	"colabrelay/relay/plain"
	"colabrelay/shared/contract"
)

// Kind is what is wrong between relay and executor. What an executor itself
// refuses is a *contract.Error instead.
type Kind string

// Kinds of Error.
const (
	KindUnreachable   Kind = "unreachable"    // no connection, a broken one, or no TLS
	KindNoSuchHost    Kind = "no_such_host"   // the name does not resolve
	KindTunnelOffline Kind = "tunnel_offline" // the tunnel's service knows no executor at this address now
	KindTunnelQuota   Kind = "tunnel_quota"   // the tunnel's plan is used up
	KindTunnelError   Kind = "tunnel_error"   // the tunnel's service says something else is wrong
	KindRateLimited   Kind = "rate_limited"   // the executor's own limit on requests without a valid signature
	KindWrongSecret   Kind = "wrong_secret"   // an executor that does not know our key
	KindNotExecutor   Kind = "not_executor"   // something else answers there
	KindBadAnswer     Kind = "bad_answer"     // an answer that was changed or forged on its way
	KindWrongProtocol Kind = "wrong_protocol" // an executor of another release
	KindTimeout       Kind = "timeout"        // no answer, or half of one, in time
)

// Kinds lists every kind, for the tables that must answer each.
var Kinds = []Kind{
	KindUnreachable, KindNoSuchHost, KindTunnelOffline, KindTunnelQuota, KindTunnelError,
	KindRateLimited, KindWrongSecret, KindNotExecutor, KindBadAnswer, KindWrongProtocol, KindTimeout,
}

// Error is a call that got no answer of an executor.
type Error struct {
	Kind    Kind
	Message string // what happened; no secret, no query
	Hint    string // the next step, for a person who uses an MCP host
	Err     error  // the cause, for errors.Is; may be nil

	// sent says that the executor may have seen the request.
	sent bool
}

// Error is the message, without the hint.
func (e *Error) Error() string { return string(e.Kind) + ": " + e.Message }

// Unwrap is the cause; context.Canceled and context.DeadlineExceeded are found here.
func (e *Error) Unwrap() error { return e.Err }

// rerunCell is the step most hints end with.
const rerunCell = "run the executor's cell in Colab again; if it prints a pairing string, run `relay pair` on this computer and paste it there"

var hints = map[Kind]string{
	KindUnreachable:   "check that this computer is online and that the executor is running: " + rerunCell,
	KindNoSuchHost:    "check that this computer is online; if the address is an old one, " + rerunCell,
	KindTunnelOffline: "the VM has ended or the executor's cell was stopped: " + rerunCell,
	KindTunnelQuota:   "see the usage page of the tunnel's account; wait for the new month, take another plan or account, or start the executor with another --tunnel",
	KindTunnelError:   "try again in a minute; if it stays, " + rerunCell,
	KindRateLimited:   "wait a minute, then call again; if that does not help, the secret is wrong: run `relay pair` on this computer and paste what the executor's cell printed",
	KindWrongSecret:   "this computer and the executor hold different secrets: run `relay pair` on this computer and paste what the executor's cell printed, or set COLAB_SECRET to the executor's EXECUTOR_SECRET",
	KindNotExecutor:   "check COLAB_URL, or pair again: " + rerunCell,
	KindBadAnswer:     "a proxy or virus scanner between this computer and the VM changes traffic: try another network, or an address with https",
	KindWrongProtocol: "use a relay and an executor of the same release",
	KindTimeout:       "try again; if it stays, look at the executor's cell in Colab: " + rerunCell,
}

// problem is an Error of kind with its usual hint.
func problem(kind Kind, message string, err error) *Error {
	return &Error{Kind: kind, Message: plain.Line(message), Hint: hints[kind], Err: err}
}

// problemWithHint is a problem whose next step is another than its kind's usual one.
func problemWithHint(kind Kind, message, step string, err error) *Error {
	e := problem(kind, message, err)
	e.Hint = step
	return e
}

// refusal is the executor's own error in err, nil where there is none.
func refusal(err error) *contract.Error {
	var refused *contract.Error
	if errors.As(err, &refused) {
		return refused
	}
	return nil
}

// mayHaveArrived reports whether the executor may have acted on the try that err
// ended. A signed refusal means that it did not, except replayed: then the request
// came twice, and the answer to the first is the one that was lost. A rate_limited that
// tells the time may stand in the place of that.
func mayHaveArrived(err error) bool {
	if refused := refusal(err); refused != nil {
		return refused.Code == contract.CodeReplayed || refused.Code == contract.CodeRateLimited && refused.ServerTime > 0
	}
	var e *Error
	return errors.As(err, &e) && e.sent
}

// ended is the error of a call whose ctx ended: what went wrong last, when
// something did, since that says more than that time ran out.
func ended(ctx context.Context, last error) error {
	cause := context.Cause(ctx)
	var e *Error
	switch {
	case refusal(last) != nil, errors.Is(last, cause):
		return last
	case errors.As(last, &e):
		told := *e
		told.Err = fmt.Errorf("%w; last try: %w", cause, last)
		return &told
	}
	return problem(KindTimeout, "no answer came in the time given", cause)
}
