package tunnel

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"math/big"
	"net"
	"sync"
	"time"
)

// dialLimit bounds connecting and the TLS handshake. Without it a server that
// accepts and says nothing would hold a try until the machine's TCP gives up.
const dialLimit = 20 * time.Second

// dialer connects the SDK to ngrok with scrub in between. The SDK does TLS
// itself, so the dialer ends that TLS inside this process, over a pipe and with
// a certificate made for the purpose, and does the real one to ngrok with the
// real roots.
type dialer struct {
	local *tls.Config    // our end of the pipe
	roots *x509.CertPool // what the SDK trusts at its end of the pipe

	mu   sync.Mutex
	real *tls.Config // towards ngrok
}

const pipeName = "localhost"

func newDialer() (*dialer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		// Wide bounds: a VM's clock may jump after its start.
		NotBefore:             time.Unix(0, 0),
		NotAfter:              time.Now().AddDate(20, 0, 0),
		DNSNames:              []string{pipeName},
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make the pipe's certificate: %v", err)
	}
	root, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("read the pipe's certificate: %v", err)
	}
	d := &dialer{roots: x509.NewCertPool()}
	d.roots.AddCert(root)
	d.local = &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
		MinVersion:   tls.VersionTLS13,
		// A ticket is written before the SDK reads: over a pipe that blocks.
		SessionTicketsDisabled: true,
	}
	return d, nil
}

// adopt takes the SDK's TLS settings, ngrok's own root among them, for the real
// connection and gives the SDK those of the pipe. The SDK calls it before each
// DialContext.
func (d *dialer) adopt(c *tls.Config) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.real = c.Clone()
	c.RootCAs, c.ServerName = d.roots, pipeName
	c.MinVersion = tls.VersionTLS13
}

// Dial implements ngrok.Dialer; the SDK only calls DialContext.
func (d *dialer) Dial(network, address string) (net.Conn, error) {
	return d.DialContext(context.Background(), network, address)
}

// DialContext implements ngrok.Dialer.
func (d *dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialLimit)
	defer cancel()
	var plain net.Dialer
	conn, err := plain.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	outer := tls.Client(conn, d.real)
	d.mu.Unlock()
	if err := outer.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, fmt.Errorf("TLS with %s: %v", address, err)
	}
	sdkEnd, ourEnd := net.Pipe()
	inner := tls.Server(ourEnd, d.local)
	go join(inner, outer)
	return &pipeConn{Conn: sdkEnd, outer: outer}, nil
}

// join copies both ways until one side ends, then ends the other.
func join(inner, outer net.Conn) {
	var both sync.WaitGroup
	both.Go(func() {
		_ = scrub(outer, inner)
		outer.Close()
		inner.Close()
	})
	both.Go(func() {
		_, _ = io.Copy(inner, outer)
		inner.Close()
		outer.Close()
	})
	both.Wait()
}

// pipeConn shows the SDK's logs the addresses of the real connection.
type pipeConn struct {
	net.Conn
	outer net.Conn
}

func (c *pipeConn) LocalAddr() net.Addr  { return c.outer.LocalAddr() }
func (c *pipeConn) RemoteAddr() net.Addr { return c.outer.RemoteAddr() }
