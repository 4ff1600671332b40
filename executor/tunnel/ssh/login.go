package ssh

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/skeema/knownhosts"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
	xknownhosts "golang.org/x/crypto/ssh/knownhosts"

	"colabrelay/executor/tunnel"
)

// loginAttempt is what one login found out in addition to its error.
type loginAttempt struct {
	keys    int    // how many could be offered
	locked  error  // why a default key could not; nil if none has a passphrase
	hostKey error  // why the server's key was not accepted
	host    []byte // the server's key, once accepted
}

// login connects, checks the server's key and logs in. It returns a
// *tunnel.Refused if another attempt would not help.
func (t *Tunnel) login(ctx context.Context) (*link, error) {
	attempt := &loginAttempt{}
	signers, done, err := t.keys.open(attempt)
	if err != nil {
		return nil, err
	}
	defer done()
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
	explanation := fmt.Sprintf("it accepted no key for %q (keys offered: %d): add the public key to that user's authorized_keys on the server", t.user, attempt.keys)
	switch {
	case attempt.keys > 0:
	case attempt.locked != nil:
		explanation = attempt.locked.Error()
	default:
		explanation = fmt.Sprintf("there is no key in %q, and no agent holds one: name a key file with --ssh-key", t.keys.folder)
	}
	return &tunnel.Refused{By: t.name(), Explanation: explanation}
}

// maxKeyFile bounds the size of a private key file: a wrong path may name anything.
const maxKeyFile = 64 << 10

// defaultKeys are tried in this order when no key file is named.
var defaultKeys = []string{"id_ed25519", "id_rsa"}

// keys are the private keys that a login may use.
type keys struct {
	file   string // the only key, if set
	socket string // of the agent
	folder string // of the default keys
}

// check fails if the named key file can't be used.
func (k keys) check() error {
	if k.file == "" {
		return nil
	}
	_, err := readKey(k.file)
	return err
}

// open collects the signers. Call done after the login: it closes the connection
// to the agent, which signs over it.
func (k keys) open(attempt *loginAttempt) (signers []ssh.Signer, done func(), err error) {
	done = func() {}
	defer func() { attempt.keys = len(signers) }()
	if k.file != "" {
		signer, err := readKey(k.file)
		if err != nil {
			return nil, done, err
		}
		return []ssh.Signer{signer}, done, nil
	}
	if k.socket != "" {
		conn, err := net.DialTimeout("unix", k.socket, dialTimeout)
		if err == nil { // an agent that has ended leaves its variable behind
			done = func() { conn.Close() }
			signers, _ = agent.NewClient(conn).Signers()
		}
	}
	for _, name := range defaultKeys {
		signer, err := readKey(filepath.Join(k.folder, name))
		switch {
		case err == nil:
			signers = append(signers, signer)
		case errors.Is(err, errLocked):
			attempt.locked = err
		}
	}
	return signers, done, nil
}

// errLocked: nobody can type a passphrase here.
var errLocked = errors.New("has a passphrase")

func readKey(file string) (ssh.Signer, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, fmt.Errorf("read ssh key: %v", err)
	}
	if !info.Mode().IsRegular() || info.Size() > maxKeyFile {
		return nil, fmt.Errorf("read ssh key: %q is not a private key", file)
	}
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read ssh key: %v", err)
	}
	signer, err := ssh.ParsePrivateKey(pem)
	if errors.As(err, new(*ssh.PassphraseMissingError)) {
		return nil, fmt.Errorf("the key %q %w: load it into ssh-agent (ssh-add %s), or use a key without a passphrase", file, errLocked, file)
	}
	if err != nil {
		return nil, fmt.Errorf("read ssh key: %q is not a private key: %v", file, err)
	}
	return signer, nil
}

// knownHosts is the file with the keys of trusted servers. A server whose key is
// unknown or changed is never spoken to: it would see everything that the tunnel
// carries.
type knownHosts struct {
	file      string
	acceptNew bool
}

// read reads the file, which may change between two connections; a missing file
// knows no server. It returns the check of a server's key, and the algorithms to
// request: those of the known keys of the server at address, because a server
// that shows a key of another type would seem to have changed. Nil algorithms
// leave the choice to the library.
func (k knownHosts) read(address string) (check ssh.HostKeyCallback, algorithms []string, err error) {
	db, err := knownhosts.NewDB(k.file)
	if errors.Is(err, os.ErrNotExist) {
		return func(string, net.Addr, ssh.PublicKey) error { return &xknownhosts.KeyError{} }, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read known hosts: %v", err)
	}
	algorithms = slices.DeleteFunc(db.HostKeyAlgorithms(address), func(name string) bool { return name == ssh.KeyAlgoRSA }) // signs by SHA-1
	return db.HostKeyCallback(), algorithms, nil
}

// judge turns the result of the check into nil or into an error that says what
// to do.
func (k knownHosts) judge(err error, address string, key ssh.PublicKey) error {
	shown := fmt.Sprintf("%s %s", key.Type(), ssh.FingerprintSHA256(key))
	refused := &tunnel.Refused{By: fmt.Sprintf("ssh server %q", address)}
	var keyError *xknownhosts.KeyError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &keyError):
		refused.Explanation = fmt.Sprintf("%q marks its key %s as revoked", k.file, shown)
	case knownhosts.IsHostKeyChanged(err):
		known := keyError.Want[0]
		refused.Explanation = fmt.Sprintf(
			"its key has changed: it showed %s, but %s:%d holds another key. Someone may be intercepting the connection; if the server was reinstalled, remove that line",
			shown, known.Filename, known.Line)
	case k.acceptNew:
		if err := k.add(knownhosts.Line([]string{address}, key)); err != nil {
			return fmt.Errorf("save the key of %q: %v", address, err)
		}
		return nil
	default:
		refused.Explanation = fmt.Sprintf(
			"its key is not in %q: it showed %s. Compare that with the server's own key (ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub), then start once with --ssh-accept-new",
			k.file, shown)
	}
	return refused
}

// add appends a line to the file, and creates the file if there is none.
func (k knownHosts) add(line string) error {
	if err := os.MkdirAll(filepath.Dir(k.file), 0o700); err != nil {
		return err
	}
	before, err := os.ReadFile(k.file)
	if err == nil && len(before) > 0 && before[len(before)-1] != '\n' { // it was edited by hand
		line = "\n" + line
	}
	f, err := os.OpenFile(k.file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(line + "\n")
	return errors.Join(err, f.Close())
}
