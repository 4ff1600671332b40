package browser

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/net/netutil"
)

// Bounds of the link's listener. Any program and any web page of this computer may connect
// to it while the browser starts.
const (
	maxConnections = 64              // at a time; further ones wait in the system's queue
	connectionTime = 2 * time.Second // of each, from its first byte to its last
	maxHeader      = 16 << 10        // bytes of a request's header
)

// link is a URL on loopback that leads on to another one, once.
type link struct {
	target string
	host   string
	path   string
	server *http.Server
	served chan struct{} // closed when the server has ended
	loaded chan struct{} // closed when a browser has loaded the link
	once   sync.Once
}

// newLink starts a link to target.
func newLink(target string) (*link, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen on loopback: %w", err)
	}
	l := &link{target: target, host: listener.Addr().String(), path: "/" + rand.Text(), served: make(chan struct{}), loaded: make(chan struct{})}
	l.server = &http.Server{Handler: l, ReadTimeout: connectionTime, WriteTimeout: connectionTime, MaxHeaderBytes: maxHeader,
		ErrorLog: log.New(io.Discard, "", 0)} // strangers could fill a log
	l.server.SetKeepAlivesEnabled(false)
	go func() {
		defer close(l.served)
		_ = l.server.Serve(netutil.LimitListener(listener, maxConnections))
	}()
	return l, nil
}

// URL returns the link itself.
func (l *link) URL() string { return "http://" + l.host + l.path }

// close ends the listener. An answer under way gets the time to reach the browser.
func (l *link) close() {
	ctx, cancel := context.WithTimeout(context.Background(), connectionTime)
	defer cancel()
	if l.server.Shutdown(ctx) != nil {
		_ = l.server.Close()
	}
	<-l.served
}

// ServeHTTP leads the first request for the link to the target, and no other one.
func (l *link) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	first := false
	if r.Method == http.MethodGet && r.Host == l.host && subtle.ConstantTimeCompare([]byte(r.URL.Path), []byte(l.path)) == 1 {
		l.once.Do(func() { first = true })
	}
	if !first {
		http.Error(w, "There is nothing here, or this link was used before: a link works once. Close this tab and open the page again.", http.StatusNotFound)
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Referrer-Policy", "no-referrer")
	w.Header().Set("Location", l.target)
	w.WriteHeader(http.StatusFound)
	close(l.loaded)
}

// openByLink starts the programs, one after the other, until one of them brought a browser
// to load a link to address.
func (s system) openByLink(ctx context.Context, programs []program, address string) error {
	var failed []error
	for _, p := range programs {
		err := s.load(ctx, p, address)
		if err == nil || ctx.Err() != nil {
			return err
		}
		failed = append(failed, err)
	}
	return fmt.Errorf("open a browser: %w; open the URL yourself", errors.Join(failed...))
}

// load starts a program with a link to address and waits until the link was loaded.
func (s system) load(ctx context.Context, p program, address string) error {
	l, err := newLink(address)
	if err != nil {
		return err
	}
	defer l.close()
	ended, err := s.start(p, l.URL())
	if err != nil {
		return err
	}
	late := time.NewTimer(s.wait)
	defer late.Stop()
	for {
		select {
		case <-l.loaded:
			return nil
		case err := <-ended:
			if err != nil {
				return fmt.Errorf("%q ended with %w", p[0], err)
			}
			ended = nil // it told a browser that runs, or another program, which starts one
		case <-late.C:
			return fmt.Errorf("%q was started, but no browser loaded the page within %g s", p[0], s.wait.Seconds())
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
