package main

import (
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"

	"colabrelay/executor/tunnel"
	"colabrelay/executor/tunnel/child"
	"colabrelay/executor/tunnel/ngrok"
)

// Environment variables that say how a tunnel is opened.
const (
	envNgrokToken  = "NGROK_AUTHTOKEN"
	envNgrokServer = "COLAB_RELAY_NGROK_SERVER"
	envNgrokCA     = "COLAB_RELAY_NGROK_CA"
)

// maxAllowed bounds --allow-cidr: each request is compared with every range, and
// ngrok accepts only policies of limited size.
const maxAllowed = 100

// tunnelKind is a value of --tunnel.
type tunnelKind string

const (
	tunnelNgrok       tunnelKind = "ngrok"
	tunnelSSH         tunnelKind = "ssh"
	tunnelCloudflared tunnelKind = "cloudflared"
	tunnelNone        tunnelKind = "none"
)

// tunnelFlags are the flags that apply to one kind only.
var tunnelFlags = map[string]tunnelKind{
	"domain": tunnelNgrok,
	"ssh":    tunnelSSH, "ssh-key": tunnelSSH, "ssh-known-hosts": tunnelSSH, "ssh-accept-new": tunnelSSH,
	"ssh-remote": tunnelSSH, "ssh-url": tunnelSSH,
}

// tunnelConfig says which tunnel to open. The fields of other kinds are ignored.
type tunnelConfig struct {
	kind   tunnelKind
	asked  bool           // by --tunnel
	allow  []netip.Prefix // visitors outside these ranges are refused; empty allows all
	ngrok  ngrok.Config
	ssh    child.SSH
	getenv func(string) string
}

// newTunnel makes the tunnel, which is nil for the kind none. It opens nothing.
func (c tunnelConfig) newTunnel(log *slog.Logger) (tunnel.Tunnel, error) {
	switch c.kind {
	case tunnelNgrok:
		c.ngrok.Allow, c.ngrok.Log = c.allow, log
		return ngrok.New(c.ngrok)
	case tunnelSSH:
		c.ssh.Getenv, c.ssh.Log = c.getenv, log
		return child.NewSSH(c.ssh)
	case tunnelCloudflared:
		return child.NewCloudflared(c.getenv, log), nil
	}
	return nil, nil
}

// addFlags defines the flags of the tunnels.
func (c *tunnelConfig) addFlags(flags *flag.FlagSet) {
	flags.StringVar((*string)(&c.kind), "tunnel", "", "")
	flags.StringVar(&c.ngrok.Domain, "domain", "", "")
	flags.StringVar(&c.ssh.Server, "ssh", "", "")
	flags.StringVar(&c.ssh.KeyFile, "ssh-key", "", "")
	flags.StringVar(&c.ssh.KnownHosts, "ssh-known-hosts", "", "")
	flags.BoolVar(&c.ssh.AcceptNew, "ssh-accept-new", false, "")
	flags.StringVar(&c.ssh.Remote, "ssh-remote", "", "")
	flags.StringVar(&c.ssh.URL, "ssh-url", "", "")
	flags.Func("allow-cidr", "", func(text string) error {
		prefix, err := tunnel.ParseCIDR(text)
		c.allow = append(c.allow, prefix)
		return err
	})
}

// finish reads the rest from the environment, and checks all of it.
func (c *tunnelConfig) finish(flags *flag.FlagSet, getenv func(string) string) error {
	c.ngrok.Version = version
	c.ngrok.Token = strings.TrimSpace(getenv(envNgrokToken))
	c.ngrok.Server = getenv(envNgrokServer)
	c.ngrok.Proxy = http.ProxyFromEnvironment
	c.getenv = getenv
	c.asked = c.kind != ""
	if err := c.chooseKind(); err != nil {
		return err
	}
	faults := []error{c.misplaced(flags)}
	if len(c.allow) > maxAllowed {
		faults = append(faults, fmt.Errorf("--allow-cidr: %d ranges are too many; at most %d are allowed", len(c.allow), maxAllowed))
	}
	switch {
	case c.kind == tunnelNgrok && c.ngrok.Token == "":
		faults = append(faults, fmt.Errorf("--tunnel ngrok: %s is not set; copy the token from https://dashboard.ngrok.com/get-started/your-authtoken", envNgrokToken))
	case c.kind == tunnelSSH && c.ssh.Server == "":
		faults = append(faults, errors.New("--tunnel ssh: name the server with --ssh [user@]host[:port]"))
	default:
		faults = append(faults, c.check())
	}
	return errors.Join(faults...)
}

// check checks the settings that the kind's own package knows.
func (c *tunnelConfig) check() error {
	t, err := c.newTunnel(nil)
	if err != nil {
		return err
	}
	if t != nil && len(c.allow) > 0 && !t.ReportsVisitor() {
		return errors.New("--allow-cidr: ssh does not report the addresses of visitors; restrict them on the server itself")
	}
	return nil
}

// chooseKind checks the value of --tunnel. Without one, the kind is ngrok if
// there is an authtoken, and none otherwise.
func (c *tunnelConfig) chooseKind() error {
	switch c.kind {
	case tunnelNgrok, tunnelSSH, tunnelCloudflared, tunnelNone:
	case "":
		c.kind = tunnelNone
		if c.ngrok.Token != "" {
			c.kind = tunnelNgrok
		}
	default:
		return fmt.Errorf("--tunnel %s: must be ngrok, ssh, cloudflared or none", c.kind)
	}
	return nil
}

// misplaced finds flags that the chosen kind would ignore.
func (c *tunnelConfig) misplaced(flags *flag.FlagSet) error {
	var faults []error
	flags.Visit(func(f *flag.Flag) {
		kind, ofOneKind := tunnelFlags[f.Name]
		if !ofOneKind || kind == c.kind {
			return
		}
		hint := "add --tunnel " + string(kind)
		if kind == tunnelNgrok {
			hint = "set " + envNgrokToken
		}
		faults = append(faults, fmt.Errorf("--%s %s: applies to the tunnel %s only; %s", f.Name, f.Value, kind, hint))
	})
	return errors.Join(faults...)
}
