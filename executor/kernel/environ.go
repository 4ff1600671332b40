package kernel

import (
	"slices"
	"strings"

	"colabrelay/executor/interpreter"
)

// withheld are variables that the kernel's code must not see: secrets of the platform,
// addresses of agents that hold keys, and references to another notebook.
var withheld = []string{
	"NGROK_API_KEY", "KAGGLE_USER_SECRETS_TOKEN", "TUNNEL_TOKEN",
	"SSH_AUTH_SOCK", "SSH_AGENT_PID", "GPG_AGENT_INFO",
	"GNOME_KEYRING_CONTROL", "DBUS_SESSION_BUS_ADDRESS", // of key rings
	"JPY_PARENT_PID", "JPY_SESSION_NAME",
}

// withheldPrefixes begin the names of the executor's own secrets. The name of a runtime
// and _FILE may follow.
var withheldPrefixes = []string{"EXECUTOR_SECRET", "NGROK_AUTHTOKEN"}

// Withheld reports whether the kernel's code must not see an environment variable.
func Withheld(name string) bool {
	return slices.Contains(withheld, name) ||
		slices.ContainsFunc(withheldPrefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// Environ returns the environment of the kernel and of all scripts that its interpreter
// runs: base without what is withheld.
func Environ(base []string, workDir string) []string {
	env := slices.DeleteFunc(slices.Clone(base), func(entry string) bool {
		name, value, _ := strings.Cut(entry, "=")
		// A backend inherited from a notebook may exist only in its kernel.
		inherited := name == "MPLBACKEND" && strings.HasPrefix(value, "module://")
		return inherited || Withheld(name)
	})
	return interpreter.Environ(env, workDir)
}
