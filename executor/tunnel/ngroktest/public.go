package ngroktest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"
)

// public is one public address. It stays when its agent disconnects: visitors then get
// ngrok's page for an offline endpoint.
type public struct {
	edge      *Edge
	url       string
	requested string // the URL by which agents request this address; may be empty
	token     string // by which an agent gets its previous address again
	server    *http.Server

	agent  *agent // nil: offline. Guarded by edge.mu
	bindID string // guarded by edge.mu
}

var errOffline = errors.New("endpoint is offline")

// publish assigns an address to the agent: the one whose token it sends, the one that
// it requests by name, or a new one.
func (e *Edge) publish(a *agent, id string, request Bind) (*public, error) {
	p := e.find(request)
	if p == nil {
		var err error
		if p, err = e.openPublic(request.requestedURL()); err != nil {
			return nil, err
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if p.agent != nil && request.Extra.Token != p.token {
		return nil, errors.New(refusal("ERR_NGROK_334", "The endpoint '"+p.url+"' is already online."))
	}
	p.agent, p.bindID = a, id
	return p, nil
}

func (e *Edge) find(request Bind) *public {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, p := range e.publics {
		if request.Extra.Token == p.token || p.requested != "" && p.requested == request.requestedURL() {
			return p
		}
	}
	return nil
}

func (e *Edge) openPublic(requested string) (*public, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &public{edge: e, url: "http://" + l.Addr().String(), requested: requested, token: e.next("token")}
	p.server = &http.Server{Handler: p.handler(), ReadHeaderTimeout: 10 * time.Second}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.publics = append(e.publics, p)
	e.work.Go(func() { _ = p.server.Serve(l) })
	return p, nil
}

func (p *public) handler() http.Handler {
	target := &url.URL{Scheme: "http", Host: "agent"}
	forward := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Host = r.In.Host
			r.SetXForwarded()
		},
		Transport:     p,
		FlushInterval: -1, // ngrok passes on each chunk immediately
		ErrorHandler:  failed,
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.edge.mu.Lock()
		p.edge.requests++
		p.edge.mu.Unlock()
		forward.ServeHTTP(w, r)
	})
}

// failed writes the error page that ngrok itself shows to a visitor.
func failed(w http.ResponseWriter, _ *http.Request, err error) {
	status, code := http.StatusBadGateway, "ERR_NGROK_3004"
	if errors.Is(err, errOffline) {
		status, code = http.StatusNotFound, "ERR_NGROK_3200"
	}
	w.Header().Set("Content-Type", "text/html")
	w.Header().Set("Ngrok-Error-Code", code)
	w.WriteHeader(status)
	fmt.Fprintf(w, "<!DOCTYPE html><html><body><p>ngrok: %s</p><p>%s</p></body></html>\n", http.StatusText(status), code)
}

// RoundTrip sends one request over its own stream, which reports to the agent the address
// of this visitor.
func (p *public) RoundTrip(req *http.Request) (*http.Response, error) {
	p.edge.mu.Lock()
	a, id := p.agent, p.bindID
	p.edge.mu.Unlock()
	if a == nil {
		return nil, errOffline
	}
	stream, err := a.proxy(id, req.RemoteAddr)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(req.Context(), func() { stream.Close() })
	written := make(chan struct{})
	go func() {
		defer close(written)
		_ = req.Write(stream) // reading the response then fails as well
	}()
	res, err := http.ReadResponse(bufio.NewReader(stream), req)
	if err != nil {
		stop()
		stream.Close()
		<-written
		return nil, err
	}
	res.Body = &body{ReadCloser: res.Body, end: func() { stop(); stream.Close() }}
	return res, nil
}

// body closes the stream when the response is closed.
type body struct {
	io.ReadCloser
	end func()
}

func (b *body) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}
