package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"syscall"

	"colabrelay/shared/bounded"
)

// TransportError names the fault of a look-up or a connection to this executor that a caller made
// by itself, as a diagnosis does.
func (c *Client) TransportError(ctx context.Context, err error) *Error {
	return c.transportError(ctx, err, false)
}

// transportError names the fault of a try that got no whole answer.
func (c *Client) transportError(ctx context.Context, err error, sent bool) *Error {
	e := c.classifyTransportError(ctx, err)
	e.sent = sent
	return e
}

func (c *Client) classifyTransportError(ctx context.Context, err error) *Error {
	host := c.base.Host
	var (
		dns         *net.DNSError
		certificate *tls.CertificateVerificationError
		invalid     x509.CertificateInvalidError
		authority   x509.UnknownAuthorityError
		record      tls.RecordHeaderError
		op          *net.OpError
	)
	switch {
	case errors.Is(context.Cause(ctx), errStalled):
		return problem(KindTimeout, fmt.Sprintf("%s stopped answering", host), errStalled)
	case ctx.Err() != nil:
		return problem(KindTimeout, fmt.Sprintf("no answer came from %s in the time given", host), context.Cause(ctx))
	case errors.Is(err, bounded.ErrTooLong):
		return problem(KindBadAnswer, fmt.Sprintf("the answer from %s is longer than any executor gives", host), err)
	case errors.As(err, &dns) && dns.IsNotFound:
		return problem(KindNoSuchHost, fmt.Sprintf("there is no host %s", dns.Name), err)
	case errors.As(err, &dns):
		return problemWithHint(KindUnreachable, fmt.Sprintf("the name %s could not be looked up", dns.Name),
			"check that this computer is online and that its name service (DNS) works", err)
	case errors.As(err, &op) && op.Op == "proxyconnect":
		return problemWithHint(KindUnreachable, "the proxy of this computer's settings does not let the relay through",
			"check HTTPS_PROXY and HTTP_PROXY in the relay's environment, or add the host to NO_PROXY", err)
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return problemWithHint(KindUnreachable, fmt.Sprintf("the TLS certificate of %s is not valid at this computer's time", host),
			"set this computer's clock; if it is right, the address is an old one: "+rerunCell, err)
	case errors.As(err, &certificate), errors.As(err, &authority):
		return problemWithHint(KindUnreachable, fmt.Sprintf("the TLS certificate of %s is not trusted", host),
			"something on the way, such as a company's proxy, opens TLS: try another network, or add its certificate to this computer's trusted ones", err)
	case errors.As(err, &record):
		return problem(KindUnreachable, fmt.Sprintf("%s does not speak TLS; its address may have to begin with http://", host), err)
	case errors.As(err, &op) && op.Op == "dial" && errors.Is(err, syscall.ECONNREFUSED):
		return problem(KindUnreachable, fmt.Sprintf("nothing listens at %s", host), err)
	case errors.As(err, &op) && op.Op == "dial":
		return problem(KindUnreachable, fmt.Sprintf("no connection to %s", host), err)
	}
	return problem(KindUnreachable, fmt.Sprintf("the connection to %s broke", host), err)
}
