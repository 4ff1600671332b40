package colabapi

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"golang.org/x/net/netutil"

	"colabrelay/relay/vm"
)

// maxVisitors bounds the connections that strangers on this computer hold open; further ones
// wait in the system's queue until one ends, in at most 5 seconds.
const maxVisitors = 16

// redirect is the listener on loopback to which Google's page sends the browser back. Every
// program on this computer, and every web page, can send requests there: only one with the
// state of this login counts, and all others change nothing.
type redirect struct {
	url      string // that Google sends the browser to
	host     string
	state    string
	server   *http.Server
	answered chan outcome // of size one: one answer only
	served   chan struct{}

	once sync.Once
}

type outcome struct {
	code string
	err  error
}

func listenForRedirect(state string) (*redirect, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("log in to Google: listen on this computer: %v", err)
	}
	host := l.Addr().String()
	r := &redirect{url: "http://" + host + "/", host: host, state: state, answered: make(chan outcome, 1), served: make(chan struct{})}
	r.server = &http.Server{
		Handler: r, ReadTimeout: 5 * time.Second, WriteTimeout: 5 * time.Second, IdleTimeout: time.Second,
		MaxHeaderBytes: 16 << 10, ErrorLog: log.New(io.Discard, "", 0),
	}
	go func() {
		defer close(r.served)
		_ = r.server.Serve(netutil.LimitListener(l, maxVisitors))
	}()
	return r, nil
}

func (r *redirect) close() {
	// The answer to the browser is still on its way; strangers' connections end in a second.
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if r.server.Shutdown(ctx) != nil {
		_ = r.server.Close()
	}
	<-r.served
}

// wait returns the authorization code.
func (r *redirect) wait(ctx context.Context) (string, error) {
	select {
	case got := <-r.answered:
		return got.code, got.err
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// ServeHTTP implements http.Handler. What it refuses, it refuses before it looks further.
func (r *redirect) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Content-Security-Policy", "default-src 'none'")
	h.Set("Connection", "close")
	if req.Host != r.host { // another name for this address: a page that rebinds its DNS name
		http.Error(w, "wrong host", http.StatusMisdirectedRequest)
		return
	}
	if req.Method != http.MethodGet {
		http.Error(w, "only GET is answered", http.StatusMethodNotAllowed)
		return
	}
	if req.URL.Path != "/" {
		http.NotFound(w, req)
		return
	}
	got, err := readRedirect(req.URL.RawQuery, r.state)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	first := false
	r.once.Do(func() { first = true; r.answered <- got })
	if !first {
		http.Error(w, "the login has been answered already", http.StatusGone)
		return
	}
	message := "Google has answered. Close this page and look at the terminal."
	if got.err != nil {
		message = "Access was not allowed. Close this page and look at the terminal."
	}
	h.Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = fmt.Fprintln(w, message)
}

// readRedirect reads the answer of Google's page. An error means that the request is not that
// answer, and changes nothing.
func readRedirect(query, state string) (outcome, error) {
	values, err := url.ParseQuery(query)
	if err != nil {
		return outcome{}, errors.New("the query cannot be read")
	}
	for _, all := range values {
		if len(all) != 1 {
			return outcome{}, errors.New("a parameter is given twice")
		}
	}
	if subtle.ConstantTimeCompare([]byte(values.Get("state")), []byte(state)) != 1 {
		return outcome{}, errors.New("this is not the answer to the login that waits here")
	}
	authorization, refusal := values.Get("code"), values.Get("error")
	switch {
	case (authorization == "") == (refusal == ""):
		return outcome{}, errors.New("a code or an error is needed")
	case refusal == "access_denied":
		return outcome{err: fmt.Errorf("%w: access to Colab was declined on Google's page: run the login again to try once more; if the page says that the app is not available, add your address as a test user of the Google Cloud project", vm.ErrNotLoggedIn)}, nil
	case refusal != "":
		return outcome{err: fmt.Errorf("%w: Google's page answered %q", vm.ErrNotLoggedIn, code(refusal))}, nil
	}
	return outcome{code: authorization}, nil
}
