package tunnel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os/exec"
	"time"

	"github.com/cenkalti/backoff/v5"
)

const (
	cloudflaredProgram = "cloudflared"
	// cloudflaredUp is how long a process may be without a connection to
	// Cloudflare: a quick tunnel that was forgotten there is asked for again and
	// again by the process, under a name that never comes back.
	cloudflaredUp = 90 * time.Second
	// cloudflaredEnd is how long it may take to end; it would itself wait up to
	// 30 s for answers that nobody awaits any more.
	cloudflaredEnd = time.Second
)

// cloudflaredTunnel reaches the executor through a quick tunnel of Cloudflare,
// which the cloudflared program opens: no account, another URL at each start.
type cloudflaredTunnel struct {
	environ []string
	log     *slog.Logger

	up       time.Duration
	retry    time.Duration
	patience time.Duration
}

func newCloudflared(c Config) *cloudflaredTunnel {
	return &cloudflaredTunnel{
		environ: forCloudflared(c.Getenv), log: c.Log,
		up: cloudflaredUp, retry: firstRetry, patience: busyPatience,
	}
}

// findCloudflared looks on PATH.
func findCloudflared() (string, error) {
	program, err := exec.LookPath(cloudflaredProgram)
	if err != nil {
		return "", &Refused{By: cloudflaredProgram, Explanation: "the program is not on PATH; install it from https://developers.cloudflare.com/cloudflare-one/connections/connect-networks/downloads/"}
	}
	return program, nil
}

// passedOn are the variables that cloudflared may need. All others stay here:
// our secret is among them, and TUNNEL_… ones would make it another tunnel.
var passedOn = []string{
	"HOME", "PATH", "TMPDIR", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR", "TUNNEL_TRANSPORT_PROTOCOL", "TUNNEL_EDGE_IP_VERSION",
	"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
}

func forCloudflared(getenv func(string) string) []string {
	environ := []string{} // nil would be all of ours
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

// localListener makes what Accept gives known as cloudflared's.
type localListener struct{ net.Listener }

func (l localListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &cloudflaredConn{conn}, nil
}

// Run implements Tunnel. The listener stays for all of it; processes come and go.
func (c *cloudflaredTunnel) Run(ctx context.Context, ready func(url string), serve func(net.Listener) error) error {
	program, err := findCloudflared()
	if err != nil {
		return err
	}
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen for cloudflared: %v", err)
	}
	defer l.Close()
	running, stop := context.WithCancel(ctx)
	defer stop()
	served := make(chan error, 1)
	go func() { served <- serve(localListener{l}) }()
	ended := make(chan error, 1)
	command := func() *exec.Cmd { return c.command(program, l.Addr().String()) }
	go func() { ended <- c.keepRunning(running, command, onChange(ready)) }()

	select {
	case err = <-served:
		served <- err
		if errors.Is(err, http.ErrServerClosed) {
			<-ctx.Done() // what is connected may end
		}
		err = fmt.Errorf("serve what cloudflared brings: %v", err)
		stop()
		<-ended
	case err = <-ended: // refused, or ctx has ended
	}
	l.Close()
	<-served
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// keepRunning starts the program again whenever it has ended.
func (c *cloudflaredTunnel) keepRunning(ctx context.Context, command func() *exec.Cmd, tell func(string)) error {
	wait := backoff.NewExponentialBackOff()
	wait.InitialInterval, wait.MaxInterval = c.retry, lastRetry
	held := newPatience(c.patience)
	for {
		began := time.Now()
		p := &quickTunnel{tell: func(url string) { held.restored(); tell(url) }, up: c.up, log: c.log}
		err := p.run(ctx, command())
		if ctx.Err() != nil {
			return nil
		}
		if refused := c.refusal(err, p, held); refused != nil {
			return refused
		}
		if time.Since(began) > heldLongEnough {
			wait.Reset()
		}
		delay := wait.NextBackOff()
		c.log.Warn("cloudflared has ended", "err", err, "said", p.said, "retry_in", delay.Round(time.Millisecond))
		if !pause(ctx, delay) {
			return nil
		}
	}
}

func (c *cloudflaredTunnel) command(program, address string) *exec.Cmd {
	cmd := exec.Command(program, "tunnel", "--url", "http://"+address, "--no-autoupdate")
	cmd.Env = c.environ
	cmd.SysProcAttr = ownGroup()
	cmd.WaitDelay = cloudflaredEnd // a child it left behind may hold its output open
	return cmd
}

// refusal ends it when the program can't be started, or gave no tunnel for long.
func (c *cloudflaredTunnel) refusal(err error, p *quickTunnel, held *patience) error {
	if !p.started {
		return &Refused{By: cloudflaredProgram, Explanation: fmt.Sprintf("the program can't be started: %v", err)}
	}
	if p.url != "" && p.registered {
		return nil
	}
	refused := &Refused{By: cloudflaredProgram, Explanation: fmt.Sprintf(
		"it gave none for %v; the last it said was %q. Cloudflare may limit quick tunnels, or this network closes port 7844 (TUNNEL_TRANSPORT_PROTOCOL=http2 takes TCP)", c.patience, p.said)}
	if held.spent() {
		return refused
	}
	return nil
}
