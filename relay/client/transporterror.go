package client

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"syscall"

	"colabrelay/shared/bounded"
)

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

// TransportError classifies err, the error of a look-up or connection that the caller itself
// made to this executor.
func (c *Client) TransportError(ctx context.Context, err error) *Error {
	return c.transportError(ctx, err, false)
}

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
