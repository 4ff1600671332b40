package tunnel

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
)

// maxKeyFile bounds what is read as a private key: a wrong path may name anything.
const maxKeyFile = 64 << 10

// defaultKeys are tried in this order when no key file is named.
var defaultKeys = []string{"id_ed25519", "id_rsa"}

// sshKeys are the private keys a login may use.
type sshKeys struct {
	file   string // the only one, if set
	socket string // the agent's
	folder string // of the default keys
}

// check finds a key file that can't be used before anything runs.
func (k sshKeys) check() error {
	if k.file == "" {
		return nil
	}
	_, err := readKey(k.file)
	return err
}

// open collects the signers. The connection to the agent must stay open while
// they sign: done closes it.
func (k sshKeys) open() (signers []ssh.Signer, done func(), err error) {
	done = func() {}
	if k.file != "" {
		signer, err := readKey(k.file)
		if err != nil {
			return nil, done, err
		}
		return []ssh.Signer{signer}, done, nil
	}
	if k.socket != "" {
		conn, err := net.DialTimeout("unix", k.socket, sshDial)
		if err == nil { // an agent that has gone leaves its variable behind
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

// none says why there may be no usable key, for a login that was refused without one.
func (k sshKeys) none() string {
	for _, name := range defaultKeys {
		_, err := readKey(filepath.Join(k.folder, name))
		if errors.As(err, new(*lockedKey)) {
			return err.Error()
		}
	}
	return fmt.Sprintf("there is no key in %q and no agent with one: name a key file with --ssh-key", k.folder)
}

// lockedKey is a private key under a passphrase, which nobody is there to type.
type lockedKey struct{ file string }

func (l *lockedKey) Error() string {
	return fmt.Sprintf("the key %q has a passphrase: load it into ssh-agent (ssh-add %s), or use a key without one", l.file, l.file)
}

func readKey(file string) (ssh.Signer, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, fmt.Errorf("read ssh key: %v", err)
	}
	if !info.Mode().IsRegular() || info.Size() > maxKeyFile {
		return nil, fmt.Errorf("read ssh key: %q is no private key", file)
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
		return nil, fmt.Errorf("read ssh key: %q is no private key: %v", file, err)
	}
	return signer, nil
}
