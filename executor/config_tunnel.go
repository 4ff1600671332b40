package main

import (
	"errors"
	"flag"
	"fmt"
	"os/user"
	"strings"

	"colabrelay/executor/tunnel"
)

// Environment variables that say how a tunnel is opened.
const (
	envNgrokToken  = "NGROK_AUTHTOKEN"
	envNgrokServer = "COLAB_RELAY_NGROK_SERVER"
	envNgrokCA     = "COLAB_RELAY_NGROK_CA"
	envSSHAgent    = "SSH_AUTH_SOCK"
)

// maxAllowed bounds --allow-cidr: each request is held against all of them, and
// ngrok takes a policy of limited size.
const maxAllowed = 100

// tunnelFlags are the flags of one kind each.
var tunnelFlags = map[string]tunnel.Kind{
	"domain": tunnel.KindNgrok,
	"ssh":    tunnel.KindSSH, "ssh-key": tunnel.KindSSH, "ssh-known-hosts": tunnel.KindSSH, "ssh-accept-new": tunnel.KindSSH,
	"ssh-remote": tunnel.KindSSH, "ssh-url": tunnel.KindSSH,
}

// addTunnelFlags defines what readTunnel checks; kind is the value of --tunnel.
func addTunnelFlags(flags *flag.FlagSet, c *tunnel.Config, kind *string) {
	flags.StringVar(kind, "tunnel", "", "")
	flags.StringVar(&c.Domain, "domain", "", "")
	flags.StringVar(&c.SSH.Server, "ssh", "", "")
	flags.StringVar(&c.SSH.KeyFile, "ssh-key", "", "")
	flags.StringVar(&c.SSH.KnownHosts, "ssh-known-hosts", "", "")
	flags.BoolVar(&c.SSH.AcceptNew, "ssh-accept-new", false, "")
	flags.StringVar(&c.SSH.Remote, "ssh-remote", "", "")
	flags.StringVar(&c.SSH.URL, "ssh-url", "", "")
	flags.Func("allow-cidr", "", func(text string) error {
		prefix, err := tunnel.ParseCIDR(text)
		c.Allow = append(c.Allow, prefix)
		return err
	})
}

// readTunnel takes the rest from the environment and checks all of it.
func (c *config) readTunnel(flags *flag.FlagSet, kind string, getenv func(string) string) error {
	t := &c.tunnel
	t.Version = version
	t.Token = strings.TrimSpace(getenv(envNgrokToken))
	t.Server = getenv(envNgrokServer)
	t.CAFile = getenv(envNgrokCA)
	t.Getenv = getenv
	t.SSH.Home, t.SSH.AgentSocket, t.SSH.User = getenv("HOME"), getenv(envSSHAgent), userName()
	var err error
	if t.Kind, err = tunnel.ParseKind(kind, t.Token); err != nil {
		return fmt.Errorf("--tunnel %s: want ngrok, ssh, cloudflared or none", kind)
	}
	faults := []error{c.misplaced(flags), c.checkAllow()}
	switch {
	case t.Kind == tunnel.KindNgrok && t.Token == "":
		faults = append(faults, fmt.Errorf("--tunnel ngrok: %s is not set; copy the token from https://dashboard.ngrok.com/get-started/your-authtoken", envNgrokToken))
	case t.Kind == tunnel.KindSSH && t.SSH.Server == "":
		faults = append(faults, errors.New("--tunnel ssh: name the server with --ssh [user@]host[:port]"))
	default:
		_, err = tunnel.New(*t) // opens nothing, checks the rest
		faults = append(faults, err)
	}
	return errors.Join(faults...)
}

// misplaced finds flags that the chosen kind would not heed.
func (c *config) misplaced(flags *flag.FlagSet) error {
	var faults []error
	flags.Visit(func(f *flag.Flag) {
		kind, ofOne := tunnelFlags[f.Name]
		if !ofOne || kind == c.tunnel.Kind {
			return
		}
		hint := "add --tunnel " + string(kind)
		if kind == tunnel.KindNgrok {
			hint = "set " + envNgrokToken
		}
		faults = append(faults, fmt.Errorf("--%s %s: only for the tunnel %s; %s", f.Name, f.Value, kind, hint))
	})
	return errors.Join(faults...)
}

// checkAllow refuses a list that could not be held to.
func (c *config) checkAllow() error {
	if len(c.tunnel.Allow) > maxAllowed {
		return fmt.Errorf("--allow-cidr: %d of them; %d is the most", len(c.tunnel.Allow), maxAllowed)
	}
	if len(c.tunnel.Allow) > 0 && !c.tunnel.Traits().TellsVisitor {
		return errors.New("--allow-cidr: behind the proxy of --ssh-url every visitor has the proxy's address; have the proxy itself turn others away")
	}
	return nil
}

// userName is who logs in to an SSH server that names nobody.
func userName() string {
	who, err := user.Current()
	if err != nil {
		return ""
	}
	return who.Username
}
