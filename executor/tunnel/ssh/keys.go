package ssh

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
)

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
func (k keys) open() (signers []ssh.Signer, done func(), err error) {
	done = func() {}
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
		if signer, err := readKey(filepath.Join(k.folder, name)); err == nil {
			signers = append(signers, signer)
		}
	}
	return signers, done, nil
}

// missing says why there is no usable key.
func (k keys) missing() string {
	for _, name := range defaultKeys {
		_, err := readKey(filepath.Join(k.folder, name))
		if errors.As(err, new(*lockedKey)) {
			return err.Error()
		}
	}
	return fmt.Sprintf("there is no key in %q, and no agent holds one: name a key file with --ssh-key", k.folder)
}

// lockedKey is the error of a private key with a passphrase, which no user can
// type here.
type lockedKey struct{ file string }

func (l *lockedKey) Error() string {
	return fmt.Sprintf("the key %q has a passphrase: load it into ssh-agent (ssh-add %s), or use a key without a passphrase", l.file, l.file)
}

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
		return nil, &lockedKey{file}
	}
	if err != nil {
		return nil, fmt.Errorf("read ssh key: %q is not a private key: %v", file, err)
	}
	return signer, nil
}
