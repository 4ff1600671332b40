package ssh

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"

	"github.com/skeema/knownhosts"
	"golang.org/x/crypto/ssh"
	xknownhosts "golang.org/x/crypto/ssh/knownhosts"

	"colabrelay/executor/tunnel"
)

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
	f, err := os.OpenFile(k.file, os.O_APPEND|os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if !endsWithNewline(f) {
		line = "\n" + line
	}
	_, err = f.WriteString(line + "\n")
	return err
}

// endsWithNewline says whether an appended line starts a new line: the last line
// of a file edited by hand may lack its end.
func endsWithNewline(f *os.File) bool {
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return true
	}
	last := make([]byte, 1)
	_, err = f.ReadAt(last, info.Size()-1)
	return err != nil || last[0] == '\n'
}
