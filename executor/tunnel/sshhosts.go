package tunnel

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

// knownHosts holds the keys of the servers we trust. A server whose key is not
// there, or is another one, is never spoken to: it would see all that is said
// on the tunnel.
type knownHosts struct {
	file      string
	acceptNew bool
}

// callback reads the file, which may change between two connections. A file
// that is not there knows nobody.
func (k knownHosts) callback() (ssh.HostKeyCallback, error) {
	check, err := knownhosts.New(k.file)
	if errors.Is(err, os.ErrNotExist) {
		return func(string, net.Addr, ssh.PublicKey) error { return &knownhosts.KeyError{} }, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read known hosts: %v", err)
	}
	return check, nil
}

// algorithms are the kinds of host key to ask for: those that are known. Without
// this a server may show a key of another kind, which looks like a changed one.
// Nil leaves the choice to the library.
func (k knownHosts) algorithms(check ssh.HostKeyCallback, address string) []string {
	var known *knownhosts.KeyError
	if !errors.As(check(address, &net.TCPAddr{}, noKey{}), &known) {
		return nil
	}
	var names []string
	for _, want := range known.Want {
		name := want.Key.Type()
		if name == ssh.KeyAlgoRSA {
			names = append(names, ssh.KeyAlgoRSASHA256, ssh.KeyAlgoRSASHA512)
			continue
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// noKey matches no known one, so that all of them are told.
type noKey struct{ ssh.PublicKey }

func (noKey) Type() string    { return "none" }
func (noKey) Marshal() []byte { return nil }

// judge turns the answer of check into nil, or a refusal that says what to do.
func (k knownHosts) judge(err error, address string, key ssh.PublicKey) error {
	if err == nil {
		return nil
	}
	shown := fmt.Sprintf("%s %s", key.Type(), ssh.FingerprintSHA256(key))
	var unknown *knownhosts.KeyError
	if !errors.As(err, &unknown) {
		return &Refused{By: fmt.Sprintf("ssh server %q", address), Explanation: fmt.Sprintf("its key %s is marked as revoked in %q", shown, k.file)}
	}
	if len(unknown.Want) > 0 {
		return &Refused{By: fmt.Sprintf("ssh server %q", address), Explanation: fmt.Sprintf(
			"its key is not the known one: it showed %s, and %s:%d holds another. Someone may be in between; if the server was set up anew, remove that line",
			shown, unknown.Want[0].Filename, unknown.Want[0].Line)}
	}
	if !k.acceptNew {
		return &Refused{By: fmt.Sprintf("ssh server %q", address), Explanation: fmt.Sprintf(
			"its key is not in %q: it showed %s. Compare that with the server's own (ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub), then start with --ssh-accept-new once",
			k.file, shown)}
	}
	return k.add(address, key)
}

// add appends the key as one line. The file is made when there is none.
func (k knownHosts) add(address string, key ssh.PublicKey) error {
	if err := os.MkdirAll(filepath.Dir(k.file), 0o700); err != nil {
		return fmt.Errorf("keep the key of %q: %v", address, err)
	}
	f, err := os.OpenFile(k.file, os.O_APPEND|os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("keep the key of %q: %v", address, err)
	}
	defer f.Close()
	line := knownhosts.Line([]string{knownhosts.Normalize(address)}, key) + "\n"
	if !endsLine(f) {
		line = "\n" + line
	}
	if _, err := f.WriteString(line); err != nil {
		return fmt.Errorf("keep the key of %q: %v", address, err)
	}
	return nil
}

// endsLine says whether what is appended begins a line: files edited by hand
// may lack the last line's end.
func endsLine(f *os.File) bool {
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return true
	}
	last := make([]byte, 1)
	_, err = f.ReadAt(last, info.Size()-1)
	return err != nil || last[0] == '\n'
}
