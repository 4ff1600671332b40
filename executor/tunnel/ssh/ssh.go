// Package ssh opens a tunnel through a port that an SSH server forwards: the
// person's own server, with or without a web proxy in front of the port, or a
// service such as localhost.run.
//
// It must not talk to a server whose host key is unknown or changed. It is the
// only package that knows SSH.
//
// Start reading at New, then at attempt. One attempt is one login: login.go
// makes it, forwarded.go keeps it alive and takes in its connections.
package ssh

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"colabrelay/executor/tunnel"
)

const (
	defaultPort       = 22
	dialTimeout       = 15 * time.Second // for the TCP connection
	loginTimeout      = 30 * time.Second // for key exchange and login: a mute server would block them forever
	keepAliveInterval = 15 * time.Second
	silentIntervals   = 3                // so long a keepalive may stay unanswered
	urlTimeout        = 30 * time.Second // for a service to print its URL
)

// Config says how to reach an SSH server and what to request from it.
type Config struct {
	Server string // [user@]host[:port]
	User   string // used when Server names none
	Home   string // holds .ssh, the default place of keys and known hosts

	KeyFile     string // a private key; empty: the agent's keys, then .ssh/id_ed25519 and id_rsa
	AgentSocket string // SSH_AUTH_SOCK; empty: no agent

	KnownHosts string // empty: .ssh/known_hosts
	AcceptNew  bool   // write the key of an unknown server to KnownHosts, as ssh's accept-new does

	// Remote is [bind:]port on the server; port 0 lets the server choose. Without
	// bind the server listens on all its addresses or, if a URL is given, on its
	// loopback address only.
	Remote string
	// URL is the public address of a proxy on the server that leads to the
	// remote port. urlFromServer reads it from what the server prints, as
	// localhost.run does. Empty means http://host:port.
	URL string
	Log *slog.Logger // nil discards
}

// urlFromServer as Config.URL reads the URL from what the server prints.
const urlFromServer = "auto"

// Tunnel reaches the executor through a port that an SSH server forwards.
type Tunnel struct {
	address string // host:port
	host    string
	user    string
	keys    keys
	hosts   knownHosts
	bind    string
	port    uint32 // 0: the server chooses
	url     string
	log     *slog.Logger
	retry   tunnel.Retry

	keepAlive  time.Duration
	urlTimeout time.Duration
}

// New checks the config. It opens nothing.
func New(c Config) (*Tunnel, error) {
	log := tunnel.Logger(c.Log)
	folder := filepath.Join(c.Home, ".ssh")
	t := &Tunnel{
		keys:  keys{file: c.KeyFile, socket: c.AgentSocket, folder: folder},
		hosts: knownHosts{file: cmp.Or(c.KnownHosts, filepath.Join(folder, "known_hosts")), acceptNew: c.AcceptNew},
		url:   strings.TrimSuffix(c.URL, "/"), log: log, retry: tunnel.NewRetry(log),
		keepAlive: keepAliveInterval, urlTimeout: urlTimeout,
	}
	if err := errors.Join(t.parseServer(c.Server, c.User), t.parseRemote(c.Remote), t.checkURL(), t.keys.check()); err != nil {
		return nil, err
	}
	return t, nil
}

func (t *Tunnel) parseServer(server, user string) error {
	name, address, found := strings.Cut(server, "@")
	if !found {
		name, address = user, server
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		host, port = strings.Trim(address, "[]"), strconv.Itoa(defaultPort)
	}
	if _, err := parsePort(port); err != nil || host == "" || strings.ContainsAny(host, "@/ \t") || name == "" {
		return fmt.Errorf("ssh server %q: must be [user@]host[:port]", server)
	}
	t.user, t.host, t.address = name, host, net.JoinHostPort(host, port)
	return nil
}

func (t *Tunnel) parseRemote(remote string) error {
	bind, port := "", cmp.Or(remote, "0")
	if i := strings.LastIndex(port, ":"); i >= 0 {
		bind, port = port[:i], port[i+1:]
	} else if t.behindProxy() {
		bind = "localhost" // the proxy runs on the server
	}
	number, err := parsePort(port)
	if err != nil {
		return fmt.Errorf("ssh remote %q: must be [bind:]port, such as 8000 or localhost:8000", remote)
	}
	t.bind, t.port = strings.Trim(bind, "[]"), number
	return nil
}

func parsePort(s string) (uint32, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	return uint32(n), err
}

// behindProxy says whether a proxy on the server leads to the forwarded port.
func (t *Tunnel) behindProxy() bool { return t.url != "" && t.url != urlFromServer }

func (t *Tunnel) checkURL() error {
	if !t.behindProxy() {
		return nil
	}
	u, err := url.Parse(t.url)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("ssh url %q: must be http(s)://host, or %q for the one that the server prints", t.url, urlFromServer)
	}
	return nil
}

// ReportsVisitor implements tunnel.Tunnel. Behind a proxy, every visitor has the proxy's
// address.
func (t *Tunnel) ReportsVisitor() bool { return t.url == "" }

// Check implements tunnel.Tunnel. It logs in, requests the port and gives it
// back, so it also finds a fixed port that another executor uses.
func (t *Tunnel) Check(ctx context.Context) (string, error) {
	link, err := t.login(ctx)
	if refused := new(tunnel.Refused); errors.As(err, &refused) {
		return "", refused
	}
	if err != nil {
		return "", fmt.Errorf("%s can't be reached: %v", t.name(), err)
	}
	defer link.close()
	if _, err := link.forward(t.bind, t.port); err != nil {
		return "", t.notForwarded(err)
	}
	return fmt.Sprintf("%s accepts the login as %q and forwards a port", t.name(), t.user), nil
}

func (t *Tunnel) name() string { return fmt.Sprintf("ssh server %q", t.host) }

// Run implements tunnel.Tunnel.
func (t *Tunnel) Run(ctx context.Context, ready func(url string), serve func(net.Listener) error) error {
	return t.retry.Run(ctx, ready, func(ctx context.Context, status *tunnel.Status) error {
		return t.attempt(ctx, status, serve)
	})
}

// attempt logs in, forwards the port and serves until the connection is lost.
func (t *Tunnel) attempt(ctx context.Context, status *tunnel.Status, serve func(net.Listener) error) error {
	link, err := t.login(ctx)
	if err != nil {
		return err
	}
	defer link.close()
	port, err := link.forward(t.bind, t.port)
	if err != nil {
		return t.notForwarded(err)
	}
	status.Up()
	return link.serve(ctx, serve, func(ctx context.Context) error { return t.announce(ctx, link, port, status) })
}

// notForwarded turns the server's refusal to forward into one that says what to
// do. For a fixed port it is temporary: our own previous connection may still
// hold the port because the server has not noticed its loss.
func (t *Tunnel) notForwarded(err error) error {
	if !errors.Is(err, errNoForward) {
		return err
	}
	if t.port == 0 {
		return &tunnel.Refused{By: t.name(), Explanation: "it does not forward ports for this login: set AllowTcpForwarding yes in its sshd_config, and check PermitListen and restrict there and in authorized_keys"}
	}
	return &tunnel.Refused{By: t.name(), Temporary: true, Explanation: fmt.Sprintf(
		"it does not forward port %d: the port may be in use, below 1024, or not allowed (AllowTcpForwarding and PermitListen in its sshd_config); --ssh-remote 0 lets the server choose", t.port)}
}

// announce reports the URL as soon as it is known.
func (t *Tunnel) announce(ctx context.Context, link *link, port uint32, status *tunnel.Status) error {
	switch t.url {
	case urlFromServer:
		return t.readURLs(ctx, link, status.URL)
	case "":
		status.URL("http://" + net.JoinHostPort(t.host, strconv.Itoa(int(port))))
	default:
		status.URL(t.url)
	}
	return nil
}
