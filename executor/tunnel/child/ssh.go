package child

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"colabrelay/executor/tunnel"
)

// SSH says how to reach an SSH server and what to request from it. What it leaves open, ssh's own
// configuration decides.
type SSH struct {
	Server     string // [user@]host[:port]
	KeyFile    string // a private key; empty: the agent's keys and the usual files
	KnownHosts string // empty: the usual file
	AcceptNew  bool   // write the key of an unknown server to KnownHosts

	// Remote is [bind:]port on the server; port 0 lets the server choose. Without
	// bind the server listens on all its addresses or, if a URL is given, on its
	// loopback address only.
	Remote string
	// URL is the public address of a proxy on the server that leads to the
	// remote port. urlFromServer reads it from what the server prints, as
	// localhost.run does. Empty means http://host:port.
	URL    string
	Getenv func(string) string
	Log    *slog.Logger // nil discards
}

// urlFromServer as SSH.URL reads the URL from what the server prints.
const urlFromServer = "auto"

// forward is what the server is asked for.
type forward struct {
	host string
	bind string // ends in a colon; empty: the server's default
	port int    // 0: the server chooses
	url  string
}

// NewSSH checks the config. It opens nothing.
func NewSSH(c SSH) (*Tunnel, error) {
	f := forward{url: strings.TrimSuffix(c.URL, "/")}
	login, serverErr := f.parseServer(c.Server)
	var keyErr error
	if c.KeyFile != "" {
		if _, err := os.Stat(c.KeyFile); err != nil {
			keyErr = fmt.Errorf("ssh key: %v", err)
		}
	}
	if err := errors.Join(serverErr, f.parseRemote(c.Remote), f.checkURL(), keyErr); err != nil {
		return nil, err
	}
	return newTunnel(definition{
		name:    "ssh",
		install: "install OpenSSH's client",
		passed:  []string{"HOME", "PATH", "TMPDIR", "TZ", "USER", "LOGNAME", "SSH_AUTH_SOCK"},
		args: func(address string) []string {
			remote := fmt.Sprintf("%s%d:%s", f.bind, f.port, address)
			return slices.Concat(c.options(), []string{"-R", remote}, login)
		},
		reader:         func() reader { return &forwarding{forward: f, found: f.known()} },
		check:          f.check,
		connectTimeout: time.Minute,
	}, c.Getenv, c.Log), nil
}

// options are those of ssh before the forward. -v has it say that the port is forwarded.
func (c *SSH) options() []string {
	check := "yes"
	if c.AcceptNew {
		check = "accept-new"
	}
	options := []string{
		"-v", "-T", "-a", "-x", "-S", "none",
		"-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=" + check, "-o", "ExitOnForwardFailure=yes",
		"-o", "ConnectTimeout=15", "-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=3",
		"-o", "ControlMaster=no", "-o", "RemoteCommand=none", "-o", "RequestTTY=no", "-o", "PermitLocalCommand=no",
	}
	if c.URL != urlFromServer { // which prints it in a session
		options = append(options, "-N")
	}
	if c.KeyFile != "" {
		options = append(options, "-o", "IdentitiesOnly=yes", "-o", fileOption("IdentityFile", c.KeyFile))
	}
	if c.KnownHosts != "" {
		options = append(options, "-o", fileOption("UserKnownHostsFile", c.KnownHosts))
	}
	return options
}

// fileOption names a file in ssh's syntax.
func fileOption(name, path string) string {
	return name + `="` + strings.NewReplacer("%", "%%", `\`, `\\`, `"`, `\"`).Replace(path) + `"`
}

// parseServer returns the arguments that name the login.
func (f *forward) parseServer(server string) (login []string, err error) {
	user, address, found := strings.Cut(server, "@")
	if !found {
		user, address = "", server
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		host, port = strings.Trim(address, "[]"), ""
	}
	_, err = strconv.ParseUint(cmp.Or(port, "22"), 10, 16)
	if err != nil || host == "" || strings.ContainsAny(host, "@/ \t") || found && user == "" {
		return nil, fmt.Errorf("ssh server %q: must be [user@]host[:port]", server)
	}
	f.host = host
	if port != "" {
		login = append(login, "-p", port)
	}
	if user != "" {
		login = append(login, "-l", user)
	}
	return append(login, "--", host), nil
}

func (f *forward) parseRemote(remote string) error {
	port := cmp.Or(remote, "0")
	if i := strings.LastIndex(port, ":"); i >= 0 {
		f.bind, port = port[:i+1], port[i+1:]
	} else if f.behindProxy() {
		f.bind = "localhost:" // the proxy runs on the server
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return fmt.Errorf("ssh remote %q: must be [bind:]port, such as 8000 or localhost:8000", remote)
	}
	f.port = int(number)
	return nil
}

// behindProxy says whether a proxy on the server leads to the forwarded port.
func (f *forward) behindProxy() bool { return f.url != "" && f.url != urlFromServer }

func (f *forward) checkURL() error {
	if !f.behindProxy() {
		return nil
	}
	u, err := url.Parse(f.url)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("ssh url %q: must be http(s)://host, or %q for the one that the server prints", f.url, urlFromServer)
	}
	return nil
}

func (f *forward) urlOf(port string) string { return "http://" + net.JoinHostPort(f.host, port) }

// known is the URL, if it is known before the server has said anything.
func (f *forward) known() string {
	switch {
	case f.behindProxy():
		return f.url
	case f.url == "" && f.port != 0:
		return f.urlOf(strconv.Itoa(f.port))
	}
	return ""
}

func (f *forward) name() string { return fmt.Sprintf("ssh server %q", f.host) }

// check logs in, requests the port and gives it back, so it also finds a fixed port that another
// executor uses.
func (f *forward) check(ctx context.Context, t *Tunnel, path string) (string, error) {
	ctx, found := context.WithCancel(ctx)
	defer found()
	opened := false
	err := t.runOnce(ctx, path, "127.0.0.1:1", func(string) { opened = true; found() })
	if opened {
		return f.name() + " accepts the login and forwards a port", nil
	}
	return "", err
}

// forwarding reads what ssh prints.
type forwarding struct {
	forward
	forwarded bool
	found     string // the URL
	hostKey   string // its fingerprint
	text      []string
}

// maxText bounds how many lines are kept that are no debug lines: the last ones say why ssh ended.
const maxText = 30

// What ssh prints, which is not translated.
var (
	forwardedLine = regexp.MustCompile(`^debug1: remote forward success for:`)
	allocatedLine = regexp.MustCompile(`^Allocated port (\d{1,5}) for remote forward`)
	hostKeyLine   = regexp.MustCompile(`^debug1: Server host key: (\S+ \S+)`)
	offendingLine = regexp.MustCompile(`(?m)^Offending \S+ key in (.+)$`)
)

// read implements reader.
func (r *forwarding) read(line string) (url string) {
	if found := hostKeyLine.FindStringSubmatch(line); found != nil {
		r.hostKey = found[1]
	}
	r.forwarded = r.forwarded || forwardedLine.MatchString(line)
	if !strings.HasPrefix(line, "debug1: ") {
		r.text = append(r.text[max(0, len(r.text)+1-maxText):], line)
		if found := allocatedLine.FindStringSubmatch(line); found != nil && r.url == "" {
			r.found = r.urlOf(found[1])
		}
		if r.url == urlFromServer {
			r.found = cmp.Or(publicURL(line, r.host), r.found)
		}
	}
	if !r.forwarded {
		return ""
	}
	return r.found
}

func (r *forwarding) explain(err error, opened bool) error {
	text := strings.Join(r.text, "\n")
	has := func(part string) bool { return strings.Contains(text, part) }
	refused := &tunnel.Refused{By: r.name()}
	switch {
	case has("Host key verification failed") && has("HOST IDENTIFICATION HAS CHANGED"):
		place := "known_hosts"
		if found := offendingLine.FindStringSubmatch(text); found != nil {
			place = found[1]
		}
		refused.Explanation = fmt.Sprintf("its key has changed: it showed %s, but %s holds another key. Someone may be intercepting the connection; if the server was reinstalled, remove that line", r.hostKey, place)
	case has("Host key verification failed"):
		refused.Explanation = fmt.Sprintf("its key is not known: it showed %s. Compare that with the server's own key (ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub), then start once with --ssh-accept-new", r.hostKey)
	case has("Permission denied (") || has("Too many authentication failures"):
		refused.Explanation = "it accepted no key: add the public key to the user's authorized_keys on the server, and name the private key with --ssh-key; load one with a passphrase into ssh-agent"
	case has("remote port forwarding failed") && r.port == 0:
		refused.Explanation = "it does not forward ports for this login: set AllowTcpForwarding yes in its sshd_config, and check PermitListen and restrict there and in authorized_keys"
	case has("remote port forwarding failed"): // our own previous connection may still hold it
		refused.Temporary = true
		refused.Explanation = fmt.Sprintf("it does not forward port %d: the port may be in use, below 1024, or not allowed (AllowTcpForwarding and PermitListen in its sshd_config); --ssh-remote 0 lets the server choose", r.port)
	case errors.Is(err, errUnconnected) && r.forwarded && r.url == urlFromServer:
		return errors.New("the server printed no https URL; name it with --ssh-url")
	case opened:
		return fmt.Errorf("ssh: %v; its last message: %q", err, r.last())
	default:
		return fmt.Errorf("%s can't be reached: %s", r.name(), cmp.Or(r.last(), err.Error()))
	}
	return refused
}

// last is ssh's last line that is no debug line.
func (r *forwarding) last() string {
	if len(r.text) == 0 {
		return ""
	}
	return strings.ToValidUTF8(r.text[len(r.text)-1], "�")
}

var urlPattern = regexp.MustCompile(`https://[A-Za-z0-9.-]+\.[A-Za-z]{2,}(?::\d+)?(?:/\S*)?`)

// servicePages are the first labels of host names that services print besides
// the tunnel's address: their dashboards and documents.
var servicePages = []string{"admin", "console", "dashboard", "docs", "www"}

// publicURL returns the tunnel's address in a line, or "". The address is an
// https URL without a path that is neither the server nor a page of the service.
func publicURL(line, host string) string {
	for _, text := range urlPattern.FindAllString(line, -1) {
		u, err := url.Parse(strings.TrimRight(text, ".,;)"))
		if err != nil || u.Path != "" || u.Hostname() == host {
			continue
		}
		label, _, _ := strings.Cut(u.Hostname(), ".")
		if slices.Contains(servicePages, strings.ToLower(label)) || strings.Count(u.Hostname(), ".") < 2 {
			continue
		}
		return u.String()
	}
	return ""
}
