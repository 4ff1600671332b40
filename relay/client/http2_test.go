package client

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"colabrelay/shared/contract"
)

// Frames of HTTP/2 (RFC 9113, section 6).
const (
	frameHeaders  = 1
	frameSettings = 4
	frameGoAway   = 7
)

// goingAway accepts one connection with HTTP/2, and says GOAWAY to its first request, as if it had
// handled none. Whether it passed the request on is its own business. No other connection follows.
func goingAway(t *testing.T, l net.Listener) {
	conn, err := l.Accept()
	if err != nil {
		t.Error(err)
		return
	}
	defer conn.Close()
	l.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	frame := func(kind byte, payload ...byte) {
		head := binary.BigEndian.AppendUint32(nil, uint32(len(payload))<<8|uint32(kind))
		_, _ = conn.Write(append(append(head, 0, 0, 0, 0, 0), payload...))
	}
	if _, err := io.ReadFull(conn, make([]byte, len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))); err != nil {
		t.Error(err)
		return
	}
	frame(frameSettings)
	for {
		var head [9]byte
		if _, err := io.ReadFull(conn, head[:]); err != nil {
			return
		}
		if _, err := io.CopyN(io.Discard, conn, int64(binary.BigEndian.Uint32(head[:4])>>8)); err != nil {
			return
		}
		if head[3] == frameHeaders {
			frame(frameGoAway, 0, 0, 0, 0, 0, 0, 0, 0)
		}
	}
}

// A proxy that passes a request on and says by HTTP/2 that it did not handle it makes the transport
// send the request again. The code may still run.
func TestASubmitThatHTTP2TakesBackMayRun(t *testing.T) {
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.StartTLS()
	certificates := server.TLS.Certificates
	roots := server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	server.Close()
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: certificates, NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan bool)
	go func() { defer close(served); goingAway(t, l) }()
	transport := NewTransport()
	transport.TLSClientConfig = &tls.Config{RootCAs: roots}
	transport.ForceAttemptHTTP2 = true
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := newClient(t, Config{
		BaseURL: "https://" + l.Addr().String(), Secret: testSecret(t, testKey), Transport: transport,
		OnAttempt: func(error) { cancel() },
	})
	c.instance.Store(&contract.Instance{ID: "instance-1", Start: "start-1"})
	_, err = c.Submit(ctx, contract.Submit{Code: "1"})
	if err == nil || !MayRun(err) {
		t.Errorf("%v: may run: %v", err, MayRun(err))
	}
	transport.CloseIdleConnections()
	<-served
}
