package ngrok

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	sdk "golang.ngrok.com/ngrok/v2"
)

// maxProxyAnswer bounds what is read of a proxy's answer to CONNECT, in bytes.
const maxProxyAnswer = 64 << 10

// dialer connects to ngrok, by CONNECT if there is a proxy. The SDK itself knows SOCKS only.
type dialer struct {
	net.Dialer
	proxy *url.URL // http or https; nil for none
}

// addProxy makes the tunnel go through the proxy that find names for ngrok's address.
func (t *Tunnel) addProxy(find func(*http.Request) (*url.URL, error)) error {
	if find == nil {
		return nil
	}
	proxy, err := find(&http.Request{URL: &url.URL{Scheme: "https", Host: t.server}})
	if proxy != nil && proxy.Scheme != "http" && proxy.Scheme != "https" {
		t.options = append(t.options, sdk.WithProxyURL(proxy.String()))
		return err
	}
	t.dialer.proxy = proxy
	return err
}

func (d *dialer) Dial(network, address string) (net.Conn, error) {
	return d.DialContext(context.Background(), network, address)
}

func (d *dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	if d.proxy == nil {
		return d.Dialer.DialContext(ctx, network, address)
	}
	at := net.JoinHostPort(d.proxy.Hostname(), cmp.Or(d.proxy.Port(), d.proxy.Scheme))
	conn, err := d.Dialer.DialContext(ctx, network, at)
	if err != nil {
		return nil, fmt.Errorf("the proxy %s: %v", at, err)
	}
	if d.proxy.Scheme == "https" {
		conn = tls.Client(conn, &tls.Config{ServerName: d.proxy.Hostname()})
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	if err := d.connect(conn, address); err != nil {
		conn.Close()
		return nil, fmt.Errorf("the proxy %s: %v", at, err)
	}
	return conn, nil
}

// connect asks the proxy for a connection to address. ngrok waits for the agent to speak
// first, so nothing of it is lost in the reader.
func (d *dialer) connect(conn net.Conn, address string) error {
	conn.SetDeadline(time.Now().Add(d.Timeout))
	req := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: address}, Host: address, Header: http.Header{}}
	if user := d.proxy.User; user != nil {
		password, _ := user.Password()
		req.SetBasicAuth(user.Username(), password)
		req.Header = http.Header{"Proxy-Authorization": req.Header["Authorization"]}
	}
	if err := req.Write(conn); err != nil {
		return err
	}
	resp, err := http.ReadResponse(bufio.NewReader(io.LimitReader(conn, maxProxyAnswer)), req)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("it answered %q to CONNECT %s", resp.Status, address)
	}
	return conn.SetDeadline(time.Time{})
}
