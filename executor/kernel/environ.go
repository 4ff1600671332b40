package kernel

import (
	"slices"
	"strings"

	"colabrelay/executor/interpreter"
)

// withheld are variables the kernel's code must not see: secrets of the platform, the
// way to agents that hold keys, and what would bind the kernel to another notebook.
var withheld = []string{
	"NGROK_API_KEY", "KAGGLE_USER_SECRETS_TOKEN", "TUNNEL_TOKEN",
	"SSH_AUTH_SOCK", "SSH_AGENT_PID", "GPG_AGENT_INFO",
	"GNOME_KEYRING_CONTROL", "DBUS_SESSION_BUS_ADDRESS", // key rings answer there
	"JPY_PARENT_PID", "JPY_SESSION_NAME",
}

// withheldPrefixes begin the names of the executor's own secrets: a runtime's name may
// follow, and _FILE.
var withheldPrefixes = []string{"EXECUTOR_SECRET", "NGROK_AUTHTOKEN"}

// Withheld reports whether the kernel's code must not see the variable of that name.
func Withheld(name string) bool {
	return slices.Contains(withheld, name) ||
		slices.ContainsFunc(withheldPrefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// Environ is the environment for everything that runs in the kernel's interpreter: the
// executor's own without what is withheld.
func Environ(base []string, workDir string) []string {
	env := slices.DeleteFunc(slices.Clone(base), func(entry string) bool {
		name, value, _ := strings.Cut(entry, "=")
		// Inherited from a notebook, the backend may be one that only its kernel has.
		inherited := name == "MPLBACKEND" && strings.HasPrefix(value, "module://")
		return inherited || Withheld(name)
	})
	return interpreter.Environ(env, workDir)
}
