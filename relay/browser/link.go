package browser

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// connectionTime is how long a connection to the link may last, from its first byte to its last: any
// program of this computer may connect while the browser starts.
const connectionTime = 2 * time.Second

// link is a URL on loopback that leads on to another one, once.
type link struct {
	target, host, path string
	server             http.Server
	used               atomic.Bool
	loaded             chan struct{} // closed when a browser has loaded the link
}

// newLink starts a link to target.
func newLink(target string) (*link, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen on loopback: %w", err)
	}
	l := &link{target: target, host: listener.Addr().String(), path: "/" + rand.Text(), loaded: make(chan struct{})}
	l.server = http.Server{Handler: l, ReadTimeout: connectionTime, WriteTimeout: connectionTime, ErrorLog: log.New(io.Discard, "", 0)} // strangers could fill a log
	l.server.SetKeepAlivesEnabled(false)
	go func() { _ = l.server.Serve(listener) }() // until close
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
}

// ServeHTTP leads the first request for the link to the target, and no other one.
func (l *link) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet || r.Host != l.host || r.URL.Path != l.path || l.used.Swap(true) {
		http.Error(w, "There is nothing here, or this link was used before: a link works once. Close this tab and open the page again.", http.StatusNotFound)
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Referrer-Policy", "no-referrer")
	w.Header().Set("Location", l.target)
	w.WriteHeader(http.StatusFound)
	close(l.loaded)
}

// load starts a program with a link to address and waits until a browser has loaded the link.
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
	late := time.After(s.wait)
	for {
		select {
		case <-l.loaded:
			return nil
		case err := <-ended:
			if err != nil {
				return fmt.Errorf("%q ended with %w", p[0], err)
			}
			ended = nil // it told a browser that runs, or another program, which starts one
		case <-late:
			return fmt.Errorf("%q was started, but no browser loaded the page within %g s", p[0], s.wait.Seconds())
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
