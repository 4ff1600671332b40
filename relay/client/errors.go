package client

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"

	"colabrelay/relay/plain"
	"colabrelay/shared/auth"
	"colabrelay/shared/bounded"
	"colabrelay/shared/contract"
	"colabrelay/shared/lazy"
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
	// get reports that the request was a GET, which changes nothing.
	get bool
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

// MayHaveArrived reports whether the executor may have acted on the attempt that ended with
// err. A signed refusal means that it did not, except replayed: then the request arrived
// twice, and the answer to the first one was lost. A rate_limited with the executor's time may
// replace a replayed.
func MayHaveArrived(err error) bool {
	if refused := refusal(err); refused != nil {
		return refused.Code == contract.CodeReplayed || refused.Code == contract.CodeRateLimited && refused.ServerTime > 0
	}
	e, ok := errors.AsType[*Error](err)
	return ok && e.sent && !e.get
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

// RouteError is the error of a Config.Transport that knows why no executor got the request.
type RouteError struct {
	Message string // what happened; no secret
	Hint    string // the next step
	Err     error  // the cause; may be nil
}

// Error returns the message without the hint.
func (e *RouteError) Error() string { return e.Message }

// Unwrap returns the cause.
func (e *RouteError) Unwrap() error { return e.Err }

// arrivedError is an error that Arrived marked.
type arrivedError struct{ error }

func (e arrivedError) Unwrap() error { return e.error }

// Arrived marks err, the error of a Config.Transport that had sent the request before, and got an
// answer that no executor signed: an executor may have received it.
func Arrived(err error) error { return arrivedError{err} }

// transportError classifies err, the error of an attempt that got no complete answer.
func (c *Client) transportError(ctx context.Context, err error, sent bool) *Error {
	e := c.classifyTransportError(ctx, err, sent)
	if c.comeback != "" && e.Kind == KindUnreachable {
		e.Hint = c.comeback
	}
	_, arrived := errors.AsType[arrivedError](err)
	e.sent = sent || arrived
	return e
}

func (c *Client) classifyTransportError(ctx context.Context, err error, sent bool) *Error {
	host, proxy := c.base.Host, c.proxy()
	var (
		dns         *net.DNSError
		certificate *tls.CertificateVerificationError
		invalid     x509.CertificateInvalidError
		authority   x509.UnknownAuthorityError
		record      tls.RecordHeaderError
		op          *net.OpError
		refused     *proxyRefusal
		route       *RouteError
	)
	switch {
	case errors.Is(context.Cause(ctx), errStalled):
		return problem(KindTimeout, fmt.Sprintf("%s stopped answering", host), errStalled)
	case ctx.Err() != nil:
		return problem(KindTimeout, fmt.Sprintf("no answer arrived from %s in time", host), context.Cause(ctx))
	case errors.As(err, &refused):
		return refusedByProxy(refused.proxy, refused.status, host, err)
	case errors.As(err, &route):
		return problemWithHint(KindTunnelOffline, route.Message, route.Hint, route.Err)
	case errors.Is(err, ErrUpgrade):
		return problem(KindNotExecutor, fmt.Sprintf("the program that answers at %s switches to another protocol (HTTP 101), which no executor does", host), err)
	case errors.Is(err, bounded.ErrTooLong):
		return problem(KindBadAnswer, fmt.Sprintf("the answer from %s is longer than an executor's can be", host), err)
	case errors.As(err, &dns) && dns.IsNotFound:
		return problem(KindNoSuchHost, fmt.Sprintf("there is no host %s", dns.Name), err)
	case errors.As(err, &dns):
		return problemWithHint(KindUnreachable, fmt.Sprintf("the name %s could not be resolved", dns.Name),
			"Check that this computer is online and that its name service (DNS) works.", err)
	case errors.As(err, &op) && op.Op == "proxyconnect":
		return problemWithHint(KindUnreachable, fmt.Sprintf("there is no connection to the proxy %s", cmp.Or(proxy, "in this computer's settings")),
			"Check HTTPS_PROXY and HTTP_PROXY in the relay's environment. If this network has no proxy, remove them there.", err)
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return problemWithHint(KindUnreachable, fmt.Sprintf("the TLS certificate of %s is not valid at this computer's time", host),
			"Set this computer's clock. If it is right, the address is an old one: "+startAgain, err)
	case errors.As(err, &certificate), errors.As(err, &authority):
		return problemWithHint(KindUnreachable, fmt.Sprintf("the TLS certificate of %s is not trusted", host),
			"Something in between, such as a company's proxy, decrypts TLS: try another network, or add its certificate to this computer's trusted ones.", err)
	case errors.As(err, &record):
		return problem(KindUnreachable, fmt.Sprintf("%s does not use TLS; its address may have to begin with http://", host), err)
	case errors.As(err, &op) && op.Op == "dial" && errors.Is(err, syscall.ECONNREFUSED):
		return problem(KindUnreachable, fmt.Sprintf("nothing listens at %s", host), err)
	case errors.As(err, &op) && op.Op == "dial":
		return problem(KindUnreachable, fmt.Sprintf("no connection to %s", host), err)
	}
	if proxy != "" && !sent {
		host += " through the proxy " + proxy
	}
	return problem(KindUnreachable, fmt.Sprintf("the connection to %s broke", host), err)
}

// maxErrorPage bounds how much of an unsigned answer is searched for an error code.
const maxErrorPage = 64 << 10

var (
	ngrokCode      = lazy.Regexp(`ERR_NGROK_[0-9]{1,6}`)
	cloudflareCode = lazy.Regexp(`(?i)error(?: code)?:?\s*(1[0-9]{3})\b`)
)

// tunnelError is the meaning of a tunnel's error code.
type tunnelError struct {
	kind    Kind
	meaning string
	hint    string // empty for the kind's usual one
}

// slower is the hint after too many requests in a minute.
const slower = "Wait a minute; ngrok counts all programs that use this account or address."

// allowAddress is the hint when --allow-cidr excludes the visitor's address.
const allowAddress = "Start the executor with an --allow-cidr that contains this network's public address, or without --allow-cidr."

// ngrokErrors are the codes in answers of ngrok's edge that say more than that something is
// wrong (https://ngrok.com/docs/errors).
var ngrokErrors = map[string]tunnelError{
	"ERR_NGROK_3200": {KindTunnelOffline, "no executor is online at this address", ""},
	"ERR_NGROK_334":  {KindTunnelOffline, "the address still belongs to a VM that is gone", ""},
	"ERR_NGROK_8012": {KindTunnelOffline, "the tunnel is up but the executor behind it is not", ""},
	"ERR_NGROK_725":  {KindTunnelQuota, "the account's bandwidth for this month is used up", ""},
	"ERR_NGROK_727":  {KindTunnelQuota, "the account's requests for this month are used up", ""},
	"ERR_NGROK_6008": {KindTunnelQuota, "the account is suspended for lack of payment", "Correct this at https://dashboard.ngrok.com/billing, or start the executor with another account or --tunnel."},
	"ERR_NGROK_6032": {KindTunnelQuota, "the account's plan does not allow the endpoint's traffic policy", "Start the executor without --allow-cidr, or use a plan that includes it."},
	"ERR_NGROK_702":  {KindTunnelError, "too many connections a minute", slower},
	"ERR_NGROK_734":  {KindTunnelError, "too many requests a minute", slower},
	"ERR_NGROK_3203": {KindTunnelError, "this network's address is not allowed", allowAddress},
	"ERR_NGROK_3205": {KindTunnelError, "this network's address is not allowed", allowAddress},
	"ERR_NGROK_6024": {KindTunnelError, "ngrok shows its warning page instead of the executor", "Something between this computer and ngrok drops the relay's headers: try another network."},
}

// cloudflareErrors are the same for Cloudflare, by the code in the page.
var cloudflareErrors = map[string]tunnelError{
	"1033": {KindTunnelOffline, "no executor is online at this address", ""},
	"1016": {KindTunnelOffline, "the address leads nowhere", ""},
	"1015": {KindTunnelError, "too many requests a minute", "Wait a minute."},
}

// unverified returns the error for an answer that no executor signed for this request.
// Nothing in the answer is trusted: it decides only which words the user reads, and whether
// the request is tried again with the same request_id.
func (c *Client) unverified(res *http.Response, body []byte, cause error) *Error {
	e := c.classifyUnverified(res, body, cause)
	e.sent, e.Err = true, cause
	return e
}

func (c *Client) classifyUnverified(res *http.Response, body []byte, cause error) *Error {
	if errors.Is(cause, auth.ErrBadSignature) {
		return problem(KindBadAnswer, "the answer's signature is not the executor's", cause)
	}
	if e := recogniseTunnelError(res, body); e != nil {
		return e
	}
	host, code := c.base.Host, unsignedCode(res, body)
	known, proxy := !c.current().IsZero(), c.proxy()
	proxied := proxy != "" && c.base.Scheme == "http" // with https, a proxy answers CONNECT only
	switch {
	case code == contract.CodeUnauthorized && res.StatusCode == http.StatusUnauthorized:
		return problem(KindWrongSecret, fmt.Sprintf("the executor at %s does not know this computer's secret", host), cause)
	case code == contract.CodeRateLimited && res.StatusCode == http.StatusTooManyRequests:
		return problem(KindRateLimited, fmt.Sprintf("the executor at %s accepts no more requests with a wrong secret from this address for a minute", host), cause)
	case res.StatusCode == http.StatusTooManyRequests:
		return problem(KindTunnelError, fmt.Sprintf("too many requests to %s", host), cause)
	case res.StatusCode == http.StatusRequestEntityTooLarge && res.Request != nil:
		return c.tooLarge(res.Request.ContentLength)
	case proxied && (res.StatusCode == http.StatusProxyAuthRequired || !known && res.StatusCode >= 400):
		return refusedByProxy(proxy, res.StatusCode, host, cause)
	case res.StatusCode == http.StatusGatewayTimeout, res.StatusCode == http.StatusRequestTimeout:
		e := problem(KindTunnelError, fmt.Sprintf("a proxy at %s gave up waiting (HTTP %d)", host, res.StatusCode), cause)
		e.gaveUp = res.StatusCode == http.StatusGatewayTimeout
		return e
	case res.StatusCode == http.StatusBadGateway, res.StatusCode == http.StatusServiceUnavailable:
		return problem(KindTunnelError, fmt.Sprintf("a proxy at %s cannot reach the executor (HTTP %d)", host, res.StatusCode), cause)
	case known && (res.StatusCode/100 != 2 || contentType(res) != `"application/json"`): // no login page is an answer of success in JSON
		return problem(KindIntercepted, fmt.Sprintf("something else answers at %s, where the executor answered before (HTTP %d, %s)", host, res.StatusCode, contentType(res)), cause)
	case res.StatusCode == http.StatusNetworkAuthenticationRequired:
		return problem(KindNotExecutor, fmt.Sprintf("this network asks for a login before it lets the relay reach %s (HTTP 511)", host), cause)
	case res.StatusCode/100 == 3:
		return problem(KindNotExecutor, fmt.Sprintf("%s redirects (HTTP %d), which no executor does", host, res.StatusCode), cause)
	case res.StatusCode/100 == 2 && len(body) == 0:
		return problemWithHint(KindBadAnswer, fmt.Sprintf("the answer from %s is empty (HTTP %d): it is that of a proxy, or of a tunnel without an executor", host, res.StatusCode),
			"Try again in a minute. If the error persists, "+startAgain, cause)
	}
	return problem(KindNotExecutor, fmt.Sprintf("the program that answers at %s is not an executor (HTTP %d, %s)", host, res.StatusCode, contentType(res)), cause)
}

// recogniseTunnelError returns the error for an error page of a tunnel's service; nil for any
// other answer.
func recogniseTunnelError(res *http.Response, body []byte) *Error {
	head := body[:min(len(body), maxErrorPage)]
	code := res.Header.Get("Ngrok-Error-Code")
	if code == "" && res.StatusCode >= 400 {
		code = string(ngrokCode().Find(head))
	}
	if ngrokCode().MatchString(code) {
		return named("ngrok", ngrokCode().FindString(code), ngrokErrors)
	}
	if !strings.EqualFold(res.Header.Get("Server"), "cloudflare") || res.StatusCode < 400 {
		return nil
	}
	if match := cloudflareCode().FindSubmatch(head); match != nil {
		return named("Cloudflare", string(match[1]), cloudflareErrors)
	}
	if res.StatusCode == 530 { // accompanies 1033 or 1016, which the page may not show
		return named("Cloudflare", "1033", cloudflareErrors)
	}
	if res.StatusCode < 500 {
		return nil
	}
	e := problem(KindTunnelError, fmt.Sprintf("Cloudflare cannot reach the executor (HTTP %d)", res.StatusCode), nil)
	e.gaveUp = res.StatusCode == http.StatusGatewayTimeout || res.StatusCode == 524
	return e
}

func named(service, code string, pages map[string]tunnelError) *Error {
	known, ok := pages[code]
	if !ok {
		known = tunnelError{kind: KindTunnelError, meaning: "its tunnel does not work"}
		if service == "ngrok" {
			known.hint = "See https://ngrok.com/docs/errors/" + strings.ToLower(code) + ". If the error persists, " + startAgain
		}
	}
	e := problem(known.kind, fmt.Sprintf("%s says %s: %s", service, code, known.meaning), nil)
	e.Hint = cmp.Or(known.hint, e.Hint)
	return e
}

// unsignedCode returns the code of an unsigned error body. An executor sends these before it
// has verified the request. The code may only choose a message and a hint.
func unsignedCode(res *http.Response, body []byte) contract.Code {
	if res.StatusCode < 400 || len(body) > maxErrorPage {
		return ""
	}
	var claimed contract.ErrorBody
	if json.Unmarshal(body, &claimed) != nil {
		return ""
	}
	return claimed.Error.Code
}

// contentType returns the media type that an answer claims, for a message.
func contentType(res *http.Response) string {
	kind, _, _ := strings.Cut(res.Header.Get("Content-Type"), ";")
	quoted := strconv.Quote(kind) // an unusual byte takes four
	if kind == "" || len(quoted) > 42 {
		return "of unknown type"
	}
	return quoted
}

// refusedByProxy returns the error for a status with which a proxy in this computer's settings
// answers in place of the host.
func refusedByProxy(proxy string, status int, host string, cause error) *Error {
	const direct = "If this network reaches the host without a proxy, add it to NO_PROXY in the relay's environment."
	switch {
	case status == http.StatusProxyAuthRequired, status == http.StatusUnauthorized: // tinyproxy says 401 of a wrong password
		return problemWithHint(KindProxy, fmt.Sprintf("the proxy %s asks for a user name and a password, or refuses those it got (HTTP %d)", proxy, status),
			"Set HTTPS_PROXY (HTTP_PROXY for an address with http) in the relay's environment to http://USER:PASSWORD@PROXY:PORT. "+direct, cause)
	case status >= 500 || status == http.StatusTooManyRequests:
		return problemWithHint(KindUnreachable, fmt.Sprintf("the proxy %s does not reach %s at this moment (HTTP %d)", proxy, host, status),
			"The executor or the VM may have ended: "+startAgain+" If they run, ask who runs the proxy. "+direct, cause)
	}
	return problemWithHint(KindProxy, fmt.Sprintf("the proxy %s refuses connections to %s (HTTP %d)", proxy, host, status),
		"Ask who runs the proxy to allow this host and port, or start the executor with another --tunnel. "+direct, cause)
}
