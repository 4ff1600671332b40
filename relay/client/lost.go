package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
)

// lost names the fault of a try that got no whole answer.
func (c *Client) lost(ctx context.Context, err error, sent bool) *Error {
	e := c.nameLoss(ctx, err)
	e.sent = sent
	return e
}

func (c *Client) nameLoss(ctx context.Context, err error) *Error {
	host := c.base.Host
	var (
		dns         *net.DNSError
		certificate *tls.CertificateVerificationError
		authority   x509.UnknownAuthorityError
		record      tls.RecordHeaderError
		op          *net.OpError
	)
	switch {
	case errors.Is(context.Cause(ctx), errStalled):
		return problem(KindTimeout, fmt.Sprintf("%s stopped answering", host), errStalled)
	case ctx.Err() != nil:
		return problem(KindTimeout, fmt.Sprintf("no answer came from %s in the time given", host), context.Cause(ctx))
	case errors.Is(err, errTooLong):
		return problem(KindBadAnswer, fmt.Sprintf("the answer from %s is longer than any executor gives", host), err)
	case errors.As(err, &dns) && dns.IsNotFound:
		return problem(KindNoSuchHost, fmt.Sprintf("there is no host %s", dns.Name), err)
	case errors.As(err, &certificate), errors.As(err, &authority):
		return problem(KindUnreachable, fmt.Sprintf("the TLS certificate of %s is not trusted", host), err)
	case errors.As(err, &record):
		return problem(KindUnreachable, fmt.Sprintf("%s does not speak TLS; its address may have to begin with http://", host), err)
	case errors.As(err, &op) && op.Op == "dial":
		return problem(KindUnreachable, fmt.Sprintf("no connection to %s", host), err)
	}
	return problem(KindUnreachable, fmt.Sprintf("the connection to %s broke", host), err)
}
