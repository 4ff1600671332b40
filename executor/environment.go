package main

import (
	"os"
	"strings"

	"colabrelay/executor/kernel"
)

// takeEnvironment takes what the kernel's code must not have out of the environment that
// programs started from here inherit, and returns a getenv that still answers for it.
// An inherited copy could be read in /proc/PID/environ by any process of the same user:
// keepPrivate protects this process only, not its children.
func takeEnvironment(getenv func(string) string) func(string) string {
	taken := map[string]string{}
	for _, entry := range os.Environ() {
		if name, _, _ := strings.Cut(entry, "="); kernel.Withheld(name) {
			taken[name] = getenv(name)
			os.Unsetenv(name)
		}
	}
	return func(name string) string {
		if value, found := taken[name]; found {
			return value
		}
		return getenv(name)
	}
}
