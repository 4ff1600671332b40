package tunnel

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

	"github.com/cenkalti/backoff/v5"
)

const (
	sshPort     = 22
	sshDial     = 15 * time.Second // for the TCP connection
	sshLogin    = 30 * time.Second // for keys and login: a mute peer would be waited for for ever
	sshAlive    = 15 * time.Second // between two questions whether the server is there
	sshMissed   = 3                // so many unanswered end the connection
	sshURLLimit = 30 * time.Second // for a service to print its URL
)

// SSH says how New reaches an SSH server and what it asks it for.
type SSH struct {
	Server string // [user@]host[:port]
	User   string // when Server names none
	Home   string // holds .ssh, where keys and known hosts are by default

	KeyFile     string // a private key; empty: the agent's, then .ssh/id_ed25519 and id_rsa
	AgentSocket string // SSH_AUTH_SOCK; empty: no agent

	KnownHosts string // empty: .ssh/known_hosts
	AcceptNew  bool   // write the key of an unknown server to KnownHosts, as ssh's accept-new does

	// Remote is [bind:]port on the server; port 0 lets it choose. Without bind
	// all of its addresses are asked for, or, with a URL, its loopback only.
	Remote string
	// URL is the public address of a proxy on the server that leads to the
	// remote port; URLFromServer takes the one that the server prints, as
	// localhost.run does; empty is http://host:port.
	URL string
}

// URLFromServer as SSH.URL reads the URL from what the server prints.
const URLFromServer = "auto"

// sshTunnel reaches the executor through a port that an SSH server forwards.
type sshTunnel struct {
	address string // host:port
	host    string
	user    string
	keys    sshKeys
	hosts   knownHosts
	bind    string
	port    uint32 // 0: the server chooses
	url     string
	log     *slog.Logger

	alive    time.Duration
	urlLimit time.Duration
	retry    time.Duration
	patience time.Duration
}

func newSSH(c Config) (*sshTunnel, error) {
	s := &sshTunnel{
		url: strings.TrimSuffix(c.SSH.URL, "/"), log: c.Log,
		keys:  sshKeys{file: c.SSH.KeyFile, socket: c.SSH.AgentSocket, folder: filepath.Join(c.SSH.Home, ".ssh")},
		alive: sshAlive, urlLimit: sshURLLimit, retry: firstRetry, patience: busyPatience,
	}
	s.hosts = knownHosts{file: cmp.Or(c.SSH.KnownHosts, filepath.Join(s.keys.folder, "known_hosts")), acceptNew: c.SSH.AcceptNew}
	err := errors.Join(s.parseServer(c.SSH.Server, c.SSH.User), s.parseRemote(c.SSH.Remote), s.checkURL(), s.keys.check())
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (s *sshTunnel) parseServer(server, user string) error {
	wrong := fmt.Errorf("ssh server %q: want [user@]host[:port]", server)
	name, rest, found := strings.Cut(server, "@")
	if !found {
		name, rest = user, server
	}
	host, port, err := net.SplitHostPort(rest)
	if err != nil {
		host, port = strings.Trim(rest, "[]"), strconv.Itoa(sshPort)
	}
	if _, err := parsePort(port); err != nil || host == "" || strings.ContainsAny(host, "@/ \t") || name == "" {
		return wrong
	}
	s.user, s.host, s.address = name, host, net.JoinHostPort(host, port)
	return nil
}

func (s *sshTunnel) parseRemote(remote string) error {
	bind, port, found := cutLast(cmp.Or(remote, "0"), ":")
	if !found {
		bind, port = "", bind
		if s.url != "" && s.url != URLFromServer {
			bind = "localhost" // the proxy is on the server
		}
	}
	number, err := parsePort(port)
	if err != nil {
		return fmt.Errorf("ssh remote %q: want [bind:]port, such as 8000 or localhost:8000", remote)
	}
	s.bind, s.port = strings.Trim(bind, "[]"), number
	return nil
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

func parsePort(s string) (uint32, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	return uint32(n), err
}

func (s *sshTunnel) checkURL() error {
	if s.url == "" || s.url == URLFromServer {
		return nil
	}
	u, err := url.Parse(s.url)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("ssh url %q: want http(s)://host, or %q for the one the server prints", s.url, URLFromServer)
	}
	return nil
}

// Run implements Tunnel.
func (s *sshTunnel) Run(ctx context.Context, ready func(url string), serve func(net.Listener) error) error {
	wait := backoff.NewExponentialBackOff()
	wait.InitialInterval, wait.MaxInterval = s.retry, lastRetry
	tell := onChange(ready)
	held := newPatience(s.patience)
	for {
		began := time.Now()
		err := s.connectAndServe(ctx, held, tell, serve)
		if ctx.Err() != nil {
			return nil
		}
		if refused := new(Refused); errors.As(err, &refused) {
			return refused
		}
		if time.Since(began) > heldLongEnough {
			wait.Reset()
		}
		delay := wait.NextBackOff()
		s.log.Warn("ssh tunnel is down", "err", err, "retry_in", delay.Round(time.Millisecond))
		if !pause(ctx, delay) {
			return nil
		}
	}
}

func (s *sshTunnel) connectAndServe(ctx context.Context, held *patience, tell func(string), serve func(net.Listener) error) error {
	link, err := s.connect(ctx)
	if err != nil {
		return err
	}
	defer link.close()
	port, err := link.forward(s.bind, s.port)
	if err != nil {
		return s.notForwarded(err, held)
	}
	held.restored()
	return link.run(ctx, serve, func(ctx context.Context) error { return s.announce(ctx, link, port, tell) })
}

// notForwarded decides what a refused forward means. A fixed port may still be
// held by our own connection before this one, which the server has not missed yet.
func (s *sshTunnel) notForwarded(err error, held *patience) error {
	if !errors.Is(err, errNoForward) {
		return err
	}
	refused := &Refused{By: s.name(), Explanation: "it does not forward ports for this login: set AllowTcpForwarding yes in its sshd_config, and see PermitListen and restrict there and in authorized_keys"}
	if s.port != 0 {
		refused.Explanation = fmt.Sprintf("it does not forward port %d: it may be taken, below 1024, or not allowed (AllowTcpForwarding and PermitListen in its sshd_config); --ssh-remote 0 lets it choose", s.port)
		return held.bear(fmt.Errorf("%w: %s", err, refused.Explanation), refused)
	}
	return refused
}

func (s *sshTunnel) name() string { return fmt.Sprintf("ssh server %q", s.host) }

// announce tells the URL, once it is known.
func (s *sshTunnel) announce(ctx context.Context, link *sshLink, port uint32, tell func(string)) error {
	switch s.url {
	case URLFromServer:
		return link.readURLs(ctx, s, tell)
	case "":
		tell("http://" + net.JoinHostPort(s.host, strconv.Itoa(int(port))))
	default:
		tell(s.url)
	}
	return nil
}

// onChange calls ready when the URL is another one than before.
func onChange(ready func(url string)) func(url string) {
	told := ""
	return func(url string) {
		if url != told {
			told = url
			ready(url)
		}
	}
}
