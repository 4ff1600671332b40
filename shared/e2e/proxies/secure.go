package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"time"
)

// newSecure starts a stand-in of a tunnel's service, which ends TLS in front of an executor. It
// listens at this computer's name, because no proxy is used for localhost, at the port of https if
// it may. It returns its address and the file of its certificate.
func newSecure(dir, target string) (address, certificate string, end func(), err error) {
	host, err := os.Hostname()
	if err != nil {
		return "", "", nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", "", nil, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{host}, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return "", "", nil, err
	}
	certificate = filepath.Join(dir, "certificate.pem")
	if err := os.WriteFile(certificate, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		return "", "", nil, err
	}
	through := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: target})
	through.FlushInterval = -1
	through.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server := httptest.NewUnstartedServer(through)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	server.Listener.Close()
	if server.Listener, err = net.Listen("tcp", host+":443"); err != nil {
		if server.Listener, err = net.Listen("tcp", host+":0"); err != nil {
			return "", "", nil, err
		}
	}
	server.StartTLS()
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	return net.JoinHostPort(host, port), certificate, server.Close, nil
}
