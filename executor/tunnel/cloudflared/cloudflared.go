// Package cloudflared opens a quick tunnel of Cloudflare by running the
// cloudflared program: it needs no account, and the URL is another one at each
// start.
//
// It must not pass on secrets to the program. The only variable that it reads
// without Config.Getenv is PATH, to find the program.
//
// Start reading at Run; process.go runs the program once.
package cloudflared

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os/exec"
	"regexp"
	"strings"
	"time"

	"colabrelay/executor/tunnel"
)

const (
	programName = "cloudflared"
	// connectTimeout is how long the program may be without a connection to
	// Cloudflare. When Cloudflare has forgotten a quick tunnel, the program
	// requests it again and again under a name that never works again.
	connectTimeout = 90 * time.Second
	// endTimeout is how long the program may take to end. It would wait up to
	// 30 s for responses that no client awaits any more.
	endTimeout = time.Second
)

// Config says how to run the program.
type Config struct {
	// Getenv reads the variables that the program gets; nil passes on none.
	Getenv func(string) string
	Log    *slog.Logger // nil discards
}

// Tunnel reaches the executor through a quick tunnel.
type Tunnel struct {
	environ []string
	log     *slog.Logger
	retry   tunnel.Retry

	connectTimeout time.Duration
}

// New opens nothing.
func New(c Config) *Tunnel {
	log := tunnel.Logger(c.Log)
	return &Tunnel{environ: environ(c.Getenv), log: log, retry: tunnel.NewRetry(log), connectTimeout: connectTimeout}
}

// passedOn are the variables that the program may need. It gets no others: our
// secret is among them, and a TUNNEL_… variable could select another tunnel.
var passedOn = []string{
	"HOME", "PATH", "TMPDIR", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR", "TUNNEL_TRANSPORT_PROTOCOL", "TUNNEL_EDGE_IP_VERSION",
	"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
}

func environ(getenv func(string) string) []string {
	environ := []string{} // nil would pass on all variables
	if getenv == nil {
		return environ
	}
	for _, name := range passedOn {
		if value := getenv(name); value != "" {
			environ = append(environ, name+"="+value)
		}
	}
	return environ
}

// find looks for the program on PATH.
func find() (string, error) {
	program, err := exec.LookPath(programName)
	if err != nil {
		return "", &tunnel.Refused{By: programName, Explanation: "the program is not on PATH; install it from https://developers.cloudflare.com/cloudflare-one/connections/connect-networks/downloads/"}
	}
	return program, nil
}

// ReportsVisitor implements tunnel.Tunnel.
func (*Tunnel) ReportsVisitor() bool { return true }

// Check implements tunnel.Tunnel. It asks the program for its version, which also
// shows that the program is built for this machine.
func (t *Tunnel) Check(ctx context.Context) (string, error) {
	program, err := find()
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, program, "--version")
	cmd.Env = t.environ
	output, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s --version: %v; install it again", program, err)
	}
	version, _, _ := strings.Cut(string(output), "\n")
	return strings.TrimSpace(version) + " at " + program, nil
}

// Run implements tunnel.Tunnel. It listens on one loopback port for the whole
// time, and starts the program again whenever it has ended.
func (t *Tunnel) Run(ctx context.Context, ready func(url string), serve func(net.Listener) error) error {
	program, err := find()
	if err != nil {
		return err
	}
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen for cloudflared: %v", err)
	}
	defer l.Close()
	programs, stop := context.WithCancel(ctx)
	defer stop()
	ran := tunnel.Start(func() error {
		return t.retry.Run(programs, ready, func(ctx context.Context, status *tunnel.Status) error {
			return t.runOnce(ctx, status, t.command(program, l.Addr().String()))
		})
	})
	served := tunnel.Serve(func() error { return serve(listener{l}) }, ran.Done, ctx.Done())
	stop()
	refused := ran.Err()
	l.Close()
	switch err := served.Err(); {
	case ctx.Err() != nil:
		return nil
	case refused != nil:
		return refused
	default:
		return fmt.Errorf("serve cloudflared's connections: %v", err)
	}
}

// listener marks the connections of our own cloudflared process.
type listener struct{ net.Listener }

// Accept implements net.Listener. Cloudflare sets the named header on each
// request, whatever the visitor sent. Only programs on this machine can connect
// here and write another address.
func (l listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &tunnel.Conn{Conn: conn, VisitorHeader: "Cf-Connecting-Ip"}, nil
}

func (t *Tunnel) command(program, address string) *exec.Cmd {
	cmd := exec.Command(program, "tunnel", "--url", "http://"+address, "--no-autoupdate")
	cmd.Env = t.environ
	cmd.SysProcAttr = ownGroup()
	cmd.WaitDelay = endTimeout // a child that it left behind may keep its output open
	return cmd
}

// runOnce runs the program until it ends. Its error is a refusal if the program
// can't be started, and a temporary one if it opened no tunnel.
func (t *Tunnel) runOnce(ctx context.Context, status *tunnel.Status, cmd *exec.Cmd) error {
	p := &process{connectTimeout: t.connectTimeout, log: logReader{log: t.log, up: func(url string) {
		status.Up()
		status.URL(url)
	}}}
	err := p.run(ctx, cmd)
	if !p.started {
		return &tunnel.Refused{By: programName, Explanation: fmt.Sprintf("the program can't be started: %v", err)}
	}
	if p.log.opened() {
		return fmt.Errorf("cloudflared: %v; its last message: %s", err, p.log.last)
	}
	refused := &tunnel.Refused{By: programName, Temporary: true, Explanation: fmt.Sprintf(
		"the program could not open it; its last message was %q. Cloudflare may limit quick tunnels, or this network may block port 7844 (TUNNEL_TRANSPORT_PROTOCOL=http2 uses TCP)", p.log.last)}
	return fmt.Errorf("%w (%v)", refused, err)
}

// maxLogLine bounds a line that cloudflared prints. The rest of a longer line is
// read as the next one.
const maxLogLine = 16 << 10

// logReader reads what the program prints.
type logReader struct {
	up  func(url string) // called when the URL leads here
	log *slog.Logger

	url       string
	connected bool   // it has been connected to Cloudflare
	last      string // the last fault it printed, or else its last line
}

// opened says whether the program has opened a tunnel.
func (r *logReader) opened() bool { return r.url != "" && r.connected }

// change is what a line says about the connection to Cloudflare.
type change int

const (
	unchanged change = iota
	connected
	disconnected
)

// The form of cloudflared's lines: a date, three letters for the level, words.
// The tunnel's URL is printed in a box; other lines may hold similar URLs.
var (
	boxedURL     = regexp.MustCompile(`\|\s+(https://[a-z0-9][a-z0-9-]*\.trycloudflare\.com)\s+\|`)
	registered   = regexp.MustCompile(`\bINF (?:Registered tunnel connection|Connection \S+ registered)\b`)
	unregistered = regexp.MustCompile(`\b(?:Unregistered tunnel connection|Retrying connection in up to)\b`)
	faultLine    = regexp.MustCompile(`\b(?:ERR|FTL) |^failed |^[Ii]ncorrect Usage`)
	logDate      = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\S+ `)
)

// read processes one line. It reports the URL only once there is a connection:
// until then Cloudflare answers the URL with an error.
func (r *logReader) read(line string) change {
	r.log.Debug("cloudflared", "line", line)
	if faultLine.MatchString(line) || !faultLine.MatchString(r.last) {
		r.last = logDate.ReplaceAllString(line, "")
	}
	if found := boxedURL.FindStringSubmatch(line); found != nil {
		r.url = found[1]
	}
	now := unchanged
	switch {
	case registered.MatchString(line):
		now, r.connected = connected, true
	case unregistered.MatchString(line):
		now = disconnected
	}
	if r.opened() {
		r.up(r.url)
	}
	return now
}

// readLines sends each line that is not empty, until the output ends.
func readLines(from io.Reader, lines chan<- string) {
	defer close(lines)
	r := bufio.NewReaderSize(from, maxLogLine)
	for {
		line, err := r.ReadSlice('\n')
		if text := strings.TrimRight(string(line), "\r\n"); text != "" {
			lines <- text
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}
