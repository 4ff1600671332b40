// Package environ makes the environments of the programs that the relay starts. The relay's own
// may have anything: its secrets, and the cloud credentials of the person's shell, which every
// extension and helper of a browser could read.
//
// A program gets the variables that it is known to need (Only). One that starts whatever its
// own settings name, as ssh starts a ProxyCommand, gets everything but the relay's settings
// (WithoutSettings).
package environ

import (
	"slices"
	"strings"
)

// Basic are variables that programs of every kind need, and that hold no secret: who the person
// is, where programs and files are, and the language. The second half is for Windows.
var Basic = []string{
	"HOME", "PATH", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_*", "TZ", "TMPDIR", "XDG_*",
	"ALLUSERSPROFILE", "APPDATA", "COMMONPROGRAMFILES*", "COMPUTERNAME", "COMSPEC", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA",
	"NUMBER_OF_PROCESSORS", "OS", "PATHEXT", "PROCESSOR_*", "PROGRAMDATA", "PROGRAMFILES*", "PROGRAMW6432", "PUBLIC",
	"SESSIONNAME", "SYSTEMDRIVE", "SYSTEMROOT", "TEMP", "TMP", "USERDOMAIN*", "USERNAME", "USERPROFILE", "WINDIR",
}

// Proxies are variables that say how to reach the network.
var Proxies = []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"}

// settings begin the names of the relay's and the executor's settings, some of which are secrets.
var settings = []string{"COLAB_*", "RELAY_*", "EXECUTOR_*", "NGROK_*"}

// Only returns the entries whose variables are named. A name that ends in * stands for all that
// begin so. Upper and lower case are the same, as Windows has it.
func Only(environment []string, names ...[]string) []string {
	kept := []string{} // not nil, which means all to package exec
	for _, entry := range environment {
		if slices.ContainsFunc(names, func(some []string) bool { return named(entry, some) }) {
			kept = append(kept, entry)
		}
	}
	return kept
}

// WithoutSettings returns the entries that are no settings of the relay or the executor.
func WithoutSettings(environment []string) []string {
	return slices.DeleteFunc(slices.Clone(environment), func(entry string) bool { return named(entry, settings) })
}

// named reports whether one of the names is that of the entry's variable.
func named(entry string, names []string) bool {
	variable, _, _ := strings.Cut(entry, "=")
	variable = strings.ToUpper(variable)
	return slices.ContainsFunc(names, func(name string) bool {
		beginning, all := strings.CutSuffix(strings.ToUpper(name), "*")
		return variable == beginning || all && strings.HasPrefix(variable, beginning)
	})
}
