package tunnel

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
	ngrok "golang.ngrok.com/ngrok/v2"
)

const (
	// busyPatience bounds the wait for an address that a dead VM still holds.
	// ngrok notices a dead agent by its missing heartbeats, within a minute or
	// so; one that is still online after this is alive.
	busyPatience = 3 * time.Minute
	// heldLongEnough is how long a session must have stood before its loss is
	// answered by an immediate new try. Without it a session that ngrok ends at
	// once would be opened again in a tight loop.
	heldLongEnough = 10 * time.Second
	firstRetry     = time.Second
	lastRetry      = 30 * time.Second
)

// ngrokTunnel reaches the executor through ngrok. The SDK mends a dropped
// session by itself and keeps the URL; ngrokTunnel decides what the SDK does
// not: when to give up, and when a wholly new session is needed.
type ngrokTunnel struct {
	token    string
	options  []ngrok.AgentOption
	endpoint []ngrok.EndpointOption
	log      *slog.Logger
	patience time.Duration
	retry    time.Duration
}

func newNgrok(c Config) (*ngrokTunnel, error) {
	n := &ngrokTunnel{token: c.Token, log: c.Log, patience: busyPatience, retry: firstRetry}
	if c.Token == "" {
		return nil, errors.New("ngrok needs an authtoken: set NGROK_AUTHTOKEN from https://dashboard.ngrok.com/get-started/your-authtoken")
	}
	d, err := newDialer()
	if err != nil {
		return nil, err
	}
	metadata := strings.TrimSpace("colab-relay " + c.Version)
	n.options = []ngrok.AgentOption{
		ngrok.WithAuthtoken(c.Token),
		ngrok.WithAgentMetadata(metadata),
		ngrok.WithDialer(d),
		ngrok.WithTLSConfig(d.adopt),
		// The SDK logs each try as an error; session.go logs what matters.
		ngrok.WithLogger(slog.New(slog.DiscardHandler)),
	}
	n.endpoint = []ngrok.EndpointOption{ngrok.WithMetadata(metadata)}
	if c.Domain != "" {
		address, err := domainURL(c.Domain)
		if err != nil {
			return nil, err
		}
		n.endpoint = append(n.endpoint, ngrok.WithURL(address))
	}
	if len(c.Allow) > 0 {
		policy, err := trafficPolicy(c.Allow)
		if err != nil {
			return nil, err
		}
		n.endpoint = append(n.endpoint, ngrok.WithTrafficPolicy(policy))
	}
	if c.Server != "" {
		if _, _, err := net.SplitHostPort(c.Server); err != nil {
			return nil, fmt.Errorf("ngrok server %q: want host:port", c.Server)
		}
		n.options = append(n.options, ngrok.WithAgentConnectURL(c.Server))
	}
	if c.CAFile != "" {
		pool, err := readPool(c.CAFile)
		if err != nil {
			return nil, err
		}
		n.options = append(n.options, ngrok.WithAgentConnectCAs(pool))
	}
	return n, nil
}

// domainURL accepts what people paste: the bare name or the whole URL.
func domainURL(domain string) (string, error) {
	host := strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(domain), "https://"), "/")
	u, err := url.Parse("https://" + host)
	if err != nil || u.Host != host || u.Port() != "" || !strings.Contains(host, ".") {
		return "", fmt.Errorf("ngrok domain %q: want a name such as your-name.ngrok-free.app", domain)
	}
	return u.String(), nil
}

func readPool(path string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read ngrok's root certificate: %v", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("read ngrok's root certificate: no PEM certificate in %q", path)
	}
	return pool, nil
}

// Run implements Tunnel.
func (n *ngrokTunnel) Run(ctx context.Context, ready func(url string), serve func(net.Listener) error) error {
	wait := backoff.NewExponentialBackOff()
	wait.InitialInterval, wait.MaxInterval = n.retry, lastRetry
	tell := onChange(ready)
	patience := newPatience(n.patience)
	for {
		began := time.Now()
		err := n.openSession(ctx, patience).run(tell, serve)
		if ctx.Err() != nil {
			return nil
		}
		if refused := new(Refused); errors.As(err, &refused) {
			return refused
		}
		if refused := patience.judge(err); refused != nil {
			return refused
		}
		if time.Since(began) > heldLongEnough {
			wait.Reset()
		}
		delay := wait.NextBackOff()
		n.log.Warn("ngrok tunnel is down", "err", n.redact(err), "retry_in", delay.Round(time.Millisecond))
		if !pause(ctx, delay) {
			return nil
		}
	}
}

// pause waits and says whether ctx still stands.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// redact makes an error of the SDK fit for a log line: ngrok's refusals quote
// the authtoken and span several lines.
func (n *ngrokTunnel) redact(err error) string {
	text := strings.Join(strings.Fields(fmt.Sprint(err)), " ")
	return strings.ReplaceAll(text, n.token, "[authtoken]")
}
