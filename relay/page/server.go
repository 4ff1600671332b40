package page

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/coder/websocket"
)

const (
	// maxHeader bounds the head of a request, in bytes. Browsers send the cookies of all
	// programs on localhost.
	maxHeader = 64 << 10
	// headTime bounds the time until a request's head has arrived.
	headTime = 10 * time.Second
	// maxBusy bounds the further tabs that are told at once that there is one already. Others
	// are just disconnected.
	maxBusy = 8
)

// server listens on loopback while a Page is open.
type server struct {
	page       *Page
	port       int
	http       *http.Server
	crowd      crowd
	busy       chan struct{}
	ctx        context.Context // ends with the server
	cancel     context.CancelFunc
	goroutines sync.WaitGroup

	mu      sync.Mutex
	stopped bool
}

// rawConn is the key of a request's connection.
type rawConn struct{}

// serve starts a server on these listeners, of one port.
func serve(p *Page, listeners []net.Listener) *server {
	ctx, cancel := context.WithCancel(context.Background())
	s := &server{page: p, port: portOf(listeners[0]), busy: make(chan struct{}, maxBusy), ctx: ctx, cancel: cancel}
	s.http = &http.Server{
		Handler: s, MaxHeaderBytes: maxHeader, ReadHeaderTimeout: headTime, ReadTimeout: headTime, WriteTimeout: headTime,
		ConnState: s.crowd.change, DisableGeneralOptionsHandler: true,
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			return context.WithValue(ctx, rawConn{}, conn)
		},
		ErrorLog: slog.NewLogLogger(p.log.Handler(), slog.LevelWarn),
	}
	s.http.SetKeepAlivesEnabled(false) // one request for each connection
	for _, l := range listeners {
		s.goroutines.Go(func() {
			_ = s.http.Serve(l) // ends when the server is stopped
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
	s.crowd.open.Wait() // the HTTP server gives some connections half a second to end
}

// begin runs f in a goroutine that stop waits for, unless the server was stopped.
func (s *server) begin(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopped {
		s.goroutines.Go(f)
	}
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
	if why := s.check(r, token); why != nil {
		s.page.refused(why.why)
		why.write(w)
		return
	}
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{subprotocol}, InsecureSkipVerify: true})
	if err != nil {
		s.page.refused("the request is no handshake of a WebSocket")
		return
	}
	raw := r.Context().Value(rawConn{}).(net.Conn)
	s.page.receive(s, conn, raw, token)
}

// check returns why a request is refused, or nil. The order is the cheapest first; nothing is
// told about the token to a page that is not Colab's.
func (s *server) check(r *http.Request, token string) *refusal {
	switch {
	case r.URL.Path != "/":
		return &refusal{http.StatusForbidden, "there is nothing at this path"}
	case r.Method != http.MethodGet:
		return &refusal{http.StatusMethodNotAllowed, "the method is not GET"}
	}
	if why := checkTarget(r, s.port); why != nil {
		return why
	}
	return checkTab(r, token)
}

// refuseBusy tells a further tab that there is one already.
func (s *server) refuseBusy(conn *websocket.Conn, raw net.Conn) {
	select {
	case s.busy <- struct{}{}:
		hangUp(conn, raw, ending{websocket.StatusTryAgainLater, "another tab is connected"}, s.page.timing.closing)
		<-s.busy
	default:
		_ = conn.CloseNow()
	}
}
