package pairing

import (
	"fmt"
	"strings"

	"colabrelay/relay/plain"
	"colabrelay/shared/lazy"
)

// Comeback is the next step if nothing answers at the runtime's address, if it is known.
func (r Runtime) Comeback() string {
	if r.SSHHost == "" {
		return ""
	}
	return fmt.Sprintf("Run `%s` in a terminal on this computer, and keep it open: it holds the connection.", r.SSHCommand())
}

// SSHCommand returns the command that connects to the machine of a runtime with an SSHHost, with
// more flags. It is quoted for the shell of this computer.
func (r Runtime) SSHCommand(flags ...string) string {
	words := append([]string{"colab-relay", "ssh", r.SSHHost}, flags...)
	if r.Name != NameOfHost(r.SSHHost) {
		words = append(words, "--name", r.Name)
	}
	return strings.Join(plain.ShellWords(append(words, r.SSHArguments...)), " ")
}

var notInName = lazy.Regexp(`[^A-Za-z0-9._-]+`)

// NameOfHost returns the name that `colab-relay ssh` gives to a runtime without --name. An address
// of ssh may be user@host or ssh://user@host:port.
func NameOfHost(address string) string {
	host := strings.TrimPrefix(address, "ssh://")
	host = host[strings.LastIndex(host, "@")+1:]
	if address != host && strings.HasPrefix(address, "ssh://") {
		host, _, _ = strings.Cut(host, ":")
	}
	return strings.Trim(notInName().ReplaceAllString(host, "-"), "-._")
}
