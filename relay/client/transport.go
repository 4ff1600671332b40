package client

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"
)

// NewTransport returns the default transport. It keeps connections open, so that a call minutes
// after the last one costs one
// round trip. The comment of each setting names the failure seen without it.
func NewTransport() *http.Transport {
	dialer := &net.Dialer{
		// A laptop that moved to another network hung in connect for minutes.
		Timeout: 10 * time.Second,
		// A router that forgot the connection dropped the next request: probes detect that
		// within 30 s, while no call waits.
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3},
	}
	return &http.Transport{
		Proxy:               http.ProxyFromEnvironment, // offices
		DialContext:         dialer.DialContext,
		TLSHandshakeTimeout: 10 * time.Second,
		// Ten concurrent agents opened and closed a connection for each call.
		MaxIdleConnsPerHost: 32,
		IdleConnTimeout:     5 * time.Minute,
		// A sealed body cannot be compressed, and an answer that is must not pass for one.
		DisableCompression:     true,
		ForceAttemptHTTP2:      true,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 10 * time.Second},
		MaxResponseHeaderBytes: 64 << 10,
		// Of a proxy that refuses, net/http's own error names neither address nor number.
		OnProxyConnectResponse: func(_ context.Context, proxy *url.URL, _ *http.Request, res *http.Response) error {
			if res.StatusCode == http.StatusOK {
				return nil
			}
			return &proxyRefusal{proxyAddress(proxy), res.StatusCode}
		},
	}
}

// Proxy returns the address of the proxy that calls to base use; empty for none.
func Proxy(base string) string {
	req, err := http.NewRequest(http.MethodGet, base, nil)
	if err != nil {
		return ""
	}
	proxy, err := http.ProxyFromEnvironment(req)
	if err != nil || proxy == nil {
		return ""
	}
	return proxyAddress(proxy)
}

// ErrUpgrade is the error of an answer that switches to another protocol. No request asks for
// that.
var ErrUpgrade = errors.New("the answer switches to another protocol (HTTP 101)")

// EndingWithContext returns a transport whose answers end with their request's context, and
// which refuses an answer that switches to another protocol. Of such an answer, net/http hands
// over the connection as the body and forgets the context: a read of it waited for ever.
func EndingWithContext(t http.RoundTripper) http.RoundTripper { return ending{t} }

type ending struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t ending) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := t.RoundTripper.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if res.StatusCode == http.StatusSwitchingProtocols {
		_ = res.Body.Close()
		return nil, ErrUpgrade
	}
	body := res.Body
	stop := context.AfterFunc(req.Context(), func() { _ = body.Close() })
	res.Body = endingBody{body, stop}
	return res, nil
}

// CloseIdleConnections closes those of the inner transport.
func (t ending) CloseIdleConnections() {
	if inner, ok := t.RoundTripper.(interface{ CloseIdleConnections() }); ok {
		inner.CloseIdleConnections()
	}
}

// endingBody is closed by its reader, or by the end of its request's context.
type endingBody struct {
	io.ReadCloser
	stop func() bool
}

func (b endingBody) Close() error {
	b.stop()
	return b.ReadCloser.Close()
}
