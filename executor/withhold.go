package main

import (
	"os"
	"strings"

	"colabrelay/executor/kernel"
)

// withholdSecrets removes the variables that the kernel's code must not see from the
// environment that child processes inherit. It returns a getenv that still knows them.
// Any process of the same user can read an inherited copy in /proc/PID/environ:
// keepPrivate protects this process only, not its children.
func withholdSecrets(getenv func(string) string) func(string) string {
	withheld := map[string]string{}
	for _, entry := range os.Environ() {
		if name, _, _ := strings.Cut(entry, "="); kernel.Withheld(name) {
			withheld[name] = getenv(name)
			os.Unsetenv(name)
		}
	}
	return func(name string) string {
		if value, found := withheld[name]; found {
			return value
		}
		return getenv(name)
	}
}
