package child

import (
	"context"
	"fmt"
	"log/slog"
	"os/exec"
	"regexp"
	"strings"
	"time"

	"colabrelay/executor/tunnel"
)

const cloudflared = "cloudflared"

// NewCloudflared returns a quick tunnel of Cloudflare: it needs no account, and the URL is another
// one at each start. It opens nothing.
func NewCloudflared(getenv func(string) string, log *slog.Logger) *Tunnel {
	return newTunnel(definition{
		name:    cloudflared,
		install: "install it from https://developers.cloudflare.com/cloudflare-one/connections/connect-networks/downloads/",
		// Another TUNNEL_… variable could select another tunnel.
		passed: []string{
			"HOME", "PATH", "TMPDIR", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR", "TUNNEL_TRANSPORT_PROTOCOL", "TUNNEL_EDGE_IP_VERSION",
			"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
		},
		args: func(address string) []string {
			return []string{"tunnel", "--url", "http://" + address, "--no-autoupdate"}
		},
		header: "Cf-Connecting-Ip",
		reader: func() reader { return &quickTunnel{} },
		check:  cloudflaredVersion,
		// When Cloudflare has forgotten a quick tunnel, the program requests it again and again under
		// a name that never works again.
		connectTimeout: 90 * time.Second,
	}, getenv, log)
}

// cloudflaredVersion asks the program for its version, which also shows that it is built for this
// machine.
func cloudflaredVersion(ctx context.Context, t *Tunnel, path string) (string, error) {
	cmd := exec.CommandContext(ctx, path, "--version")
	cmd.Env = t.environ
	output, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s --version: %v; install it again", path, err)
	}
	version, _, _ := strings.Cut(string(output), "\n")
	return strings.TrimSpace(version) + " at " + path, nil
}

// quickTunnel reads what cloudflared prints.
type quickTunnel struct {
	url       string
	connected bool
	last      string // the last fault it printed, or else its last line
}

// The form of cloudflared's lines: a date, three letters for the level, words.
// The tunnel's URL is printed in a box; other lines may hold similar URLs.
var (
	boxedURL     = regexp.MustCompile(`\|\s+(https://[a-z0-9][a-z0-9-]*\.trycloudflare\.com)\s+\|`)
	registered   = regexp.MustCompile(`\bINF (?:Registered tunnel connection|Connection \S+ registered)\b`)
	unregistered = regexp.MustCompile(`\b(?:Unregistered tunnel connection|Retrying connection in up to)\b`)
	faultLine    = regexp.MustCompile(`\b(?:ERR|FTL) |^failed |^[Ii]ncorrect Usage`)
	logDate      = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\S+ `)
)

// read implements reader. Without a connection, Cloudflare answers the URL with an error.
func (q *quickTunnel) read(line string) (url string) {
	if faultLine.MatchString(line) || !faultLine.MatchString(q.last) {
		q.last = logDate.ReplaceAllString(line, "")
	}
	if found := boxedURL.FindStringSubmatch(line); found != nil {
		q.url = found[1]
	}
	switch {
	case registered.MatchString(line):
		q.connected = true
	case unregistered.MatchString(line):
		q.connected = false
	}
	if !q.connected {
		return ""
	}
	return q.url
}

func (q *quickTunnel) explain(err error, opened bool) error {
	if opened {
		return fmt.Errorf("cloudflared: %v; its last message: %s", err, q.last)
	}
	refused := &tunnel.Refused{By: cloudflared, Temporary: true, Explanation: fmt.Sprintf(
		"the program could not open it; its last message was %q. Cloudflare may limit quick tunnels, or this network may block port 7844 (TUNNEL_TRANSPORT_PROTOCOL=http2 uses TCP)", q.last)}
	return fmt.Errorf("%w (%v)", refused, err)
}
