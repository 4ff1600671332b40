package ssh

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"colabrelay/executor/tunnel"
)

// loginAttempt is what one login found out in addition to its error.
type loginAttempt struct {
	keys    int    // how many could be offered
	hostKey error  // why the server's key was not accepted
	host    []byte // the server's key, once accepted
}

// login connects, checks the server's key and logs in. It returns a
// *tunnel.Refused if another attempt would not help.
func (t *Tunnel) login(ctx context.Context) (*link, error) {
	signers, done, err := t.keys.open()
	if err != nil {
		return nil, err
	}
	defer done()
	attempt := &loginAttempt{keys: len(signers)}
	config, err := t.clientConfig(attempt, signers)
	if err != nil {
		return nil, err
	}
	dialer := net.Dialer{Timeout: dialTimeout}
	conn, err := dialer.DialContext(ctx, "tcp", t.address)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(loginTimeout)) // works on every TCP connection
	c, channels, requests, err := ssh.NewClientConn(conn, t.address, config)
	if !stop() && err == nil {
		c.Close()
		return nil, ctx.Err()
	}
	if err != nil {
		conn.Close()
		return nil, t.notLoggedIn(err, attempt)
	}
	_ = conn.SetDeadline(time.Time{})
	return &link{client: ssh.NewClient(c, channels, requests), interval: t.keepAlive}, nil
}

func (t *Tunnel) clientConfig(attempt *loginAttempt, signers []ssh.Signer) (*ssh.ClientConfig, error) {
	check, algorithms, err := t.hosts.read(t.address)
	if err != nil {
		return nil, err
	}
	return &ssh.ClientConfig{
		User:              t.user,
		Auth:              []ssh.AuthMethod{ssh.PublicKeys(signers...)},
		HostKeyAlgorithms: algorithms,
		HostKeyCallback: func(address string, remote net.Addr, key ssh.PublicKey) error {
			if bytes.Equal(key.Marshal(), attempt.host) {
				return nil // called again each time the session keys change
			}
			attempt.hostKey = t.hosts.judge(check(address, remote, key), address, key)
			if attempt.hostKey == nil {
				attempt.host = key.Marshal()
			}
			return attempt.hostKey
		},
	}, nil
}

// notLoggedIn says whether a failed login is worth another attempt. The library
// has no error type for "no key was accepted", only this text.
func (t *Tunnel) notLoggedIn(err error, attempt *loginAttempt) error {
	if attempt.hostKey != nil {
		return attempt.hostKey
	}
	if errors.As(err, new(*ssh.AlgorithmNegotiationError)) {
		return &tunnel.Refused{By: t.name(), Explanation: fmt.Sprintf(
			"no common algorithm (%v); if this is about host keys, %q holds a type of key that the server no longer has", err, t.hosts.file)}
	}
	if !strings.Contains(err.Error(), "unable to authenticate") && !strings.Contains(err.Error(), "authentication failures") {
		return err
	}
	explanation := t.keys.missing()
	if attempt.keys > 0 {
		explanation = fmt.Sprintf("it accepted no key for %q (keys offered: %d): add the public key to that user's authorized_keys on the server", t.user, attempt.keys)
	}
	return &tunnel.Refused{By: t.name(), Explanation: explanation}
}
