package page

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
	"golang.org/x/net/netutil"
)

const (
	// maxHeader bounds the head of a request, in bytes. Browsers send the cookies of all
	// programs on localhost.
	maxHeader = 64 << 10
	// headTime bounds the time until a request's head has arrived.
	headTime = 10 * time.Second
	// maxConns bounds the connections of each listener; a further one waits until one ends, at most
	// headTime.
	maxConns = 64
)

// server listens on loopback while a Page is open.
type server struct {
	page       *Page
	port       int
	http       *http.Server
	ctx        context.Context // ends with the server
	cancel     context.CancelFunc
	goroutines sync.WaitGroup

	mu      sync.Mutex
	stopped bool
}

// serve starts a server on these listeners, of one port.
func serve(p *Page, listeners []net.Listener) *server {
	ctx, cancel := context.WithCancel(context.Background())
	s := &server{page: p, port: portOf(listeners[0]), ctx: ctx, cancel: cancel}
	s.http = &http.Server{
		Handler: s, MaxHeaderBytes: maxHeader, ReadHeaderTimeout: headTime, ReadTimeout: headTime, WriteTimeout: headTime,
		DisableGeneralOptionsHandler: true, ErrorLog: slog.NewLogLogger(p.log.Handler(), slog.LevelWarn),
	}
	s.http.SetKeepAlivesEnabled(false) // one request for each connection
	for _, l := range listeners {
		s.goroutines.Go(func() {
			_ = s.http.Serve(netutil.LimitListener(l, maxConns)) // ends when the server is stopped
		})
	}
	return s
}

// stop ends the server and its tab. All goroutines have ended when it returns.
func (s *server) stop() {
	s.mu.Lock()
	s.stopped = true
	s.mu.Unlock()
	s.cancel()
	_ = s.http.Close()
	s.goroutines.Wait()
}

// enter makes stop wait for a handler, which calls goroutines.Done. It returns false if the
// server was stopped.
func (s *server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopped {
		s.goroutines.Add(1)
	}
	return !s.stopped
}

// ServeHTTP answers every connection. It returns when the connection of a tab has ended.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !s.enter() {
		return
	}
	defer s.goroutines.Done()
	token := s.page.currentToken()
	if refused := check(r, s.port, token); refused != nil {
		s.page.refused(refused.why)
		http.Error(w, refused.why, refused.status)
		return
	}
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{subprotocol}, InsecureSkipVerify: true})
	if err != nil {
		s.page.refused("the request is no handshake of a WebSocket")
		return
	}
	s.page.receive(s, conn, token)
}

// subprotocol is what Colab's page offers and expects back; without the echo it drops the
// connection.
const subprotocol = "mcp"

// hosts are the hosts of Colab's page, which is served by https only.
var hosts = []string{"colab.research.google.com", "colab.google.com"}

// refusal is why a connection was refused.
type refusal struct {
	status int
	why    string // in fixed words, for the log and the person
}

// check returns why a request is refused, or nil. The order is the cheapest first; nothing is
// told about the token to a page that is not Colab's. Another host is a name that leads to this
// computer by a trick of DNS. The token must be there exactly once.
func check(r *http.Request, port int, token string) *refusal {
	own, origin := ":"+strconv.Itoa(port), strings.Join(r.Header.Values("Origin"), ", ")
	page, isHTTPS := strings.CutPrefix(origin, "https://")
	query, err := url.ParseQuery(r.URL.RawQuery)
	tokens := query["access_token"]
	offered := strings.Split(strings.Join(r.Header.Values("Sec-WebSocket-Protocol"), ","), ",")
	for _, rule := range []struct {
		broken bool
		refusal
	}{
		{r.URL.Path != "/", refusal{http.StatusForbidden, "there is nothing at this path"}},
		{!slices.Contains([]string{"localhost" + own, "127.0.0.1" + own, "[::1]" + own}, r.Host), refusal{http.StatusForbidden, "the request is for another host"}},
		{!isHTTPS || !slices.Contains(hosts, page), refusal{http.StatusForbidden, "the request does not come from Colab's page"}},
		{err != nil, refusal{http.StatusForbidden, "the query has no valid form"}},
		{len(tokens) == 0, refusal{http.StatusUnauthorized, "there is no token"}},
		{len(tokens) > 1, refusal{http.StatusForbidden, "there is more than one token"}},
		{subtle.ConstantTimeCompare([]byte(strings.Join(tokens, "")), []byte(token)) != 1, refusal{http.StatusForbidden, "the token is wrong, as in a page that was opened earlier"}},
		{!slices.ContainsFunc(offered, func(name string) bool { return strings.Trim(name, " \t") == subprotocol }), refusal{http.StatusBadRequest, `the request does not offer the sub-protocol "mcp"`}},
	} {
		if rule.broken {
			return &rule.refusal
		}
	}
	return nil
}

// maxPorts bounds the free ports that are tried until one is free on both addresses.
const maxPorts = 20

// listen opens a port on 127.0.0.1, and the same one on [::1] where there is IPv6. A browser
// takes either address for localhost, so another program on one of them would get the token.
func listen(port int) ([]net.Listener, error) {
	for range maxPorts {
		listeners, err := listenOnce(port)
		if err == nil {
			return listeners, nil
		}
		if port != 0 {
			return nil, fmt.Errorf("listening for Colab's page: %w: another program may use port %d: choose another one with --page-port", err, port)
		}
	}
	return nil, fmt.Errorf("listening for Colab's page: %d free ports of 127.0.0.1 are taken on [::1]: choose one with --page-port", maxPorts)
}

func listenOnce(port int) ([]net.Listener, error) {
	four, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return nil, err
	}
	if !hasIPv6() {
		return []net.Listener{four}, nil
	}
	six, err := net.Listen("tcp6", net.JoinHostPort("::1", strconv.Itoa(portOf(four))))
	if err != nil {
		_ = four.Close()
		return nil, err
	}
	return []net.Listener{four, six}, nil
}

// hasIPv6 reports whether this computer has the address [::1].
func hasIPv6() bool {
	probe, err := net.Listen("tcp6", "[::1]:0")
	if err != nil {
		return false
	}
	_ = probe.Close()
	return true
}

func portOf(l net.Listener) int { return l.Addr().(*net.TCPAddr).Port }

// EmptyNotebook is the address of Colab's empty notebook.
const EmptyNotebook = "https://colab.research.google.com/notebooks/empty.ipynb"

// CheckNotebookURL returns why an address is not one of a notebook in Colab, with what to do,
// or nil. "" stands for Colab's empty notebook.
func CheckNotebookURL(address string) error {
	_, err := parseNotebookURL(address)
	return err
}

func parseNotebookURL(address string) (*url.URL, error) {
	if address == "" {
		address = EmptyNotebook
	}
	u, err := url.Parse(address)
	why := ""
	switch {
	case err != nil:
		why = "has no valid form"
	case u.Scheme != "https":
		why = "does not begin with https://"
	case u.User != nil:
		why = "names a user"
	case !slices.Contains(hosts, u.Host):
		why = "does not belong to Colab"
	default:
		return u, nil
	}
	return nil, fmt.Errorf(`the notebook's address %q %s: give one such as "https://colab.research.google.com/drive/ID"`, address, why)
}

// address returns the URL that makes Colab's page dial this port with this token.
func address(notebook string, port int, token string) (string, error) {
	u, err := parseNotebookURL(notebook)
	if err != nil {
		return "", err
	}
	number := strconv.Itoa(port)
	query := u.Query() // encoded anew, because the address may have been typed
	query.Set("p", number)
	u.RawQuery, u.Fragment, u.RawFragment = query.Encode(), "", ""
	return u.String() + "#mcpProxyToken=" + token + "&mcpProxyPort=" + number, nil
}

// newToken returns 16 random bytes as 22 characters, as Google's own server does.
func newToken() string {
	b := make([]byte, 16)
	rand.Read(b) // never fails
	return base64.RawURLEncoding.EncodeToString(b)
}
