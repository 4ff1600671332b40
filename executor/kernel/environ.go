package kernel

import (
	"slices"
	"strings"

	"colabrelay/executor/interpreter"
)

// withheld are variables the kernel's code must not see: secrets of the
// executor and of the platform, and what would bind it to another notebook.
var withheld = []string{
	"EXECUTOR_SECRET", "EXECUTOR_SECRET_FILE", "NGROK_AUTHTOKEN", "NGROK_API_KEY",
	"KAGGLE_USER_SECRETS_TOKEN", "JPY_PARENT_PID", "JPY_SESSION_NAME",
}

// Environ is the environment for everything that runs in the kernel's interpreter: the
// executor's own without what is withheld.
func Environ(base []string, workDir string) []string {
	env := slices.DeleteFunc(slices.Clone(base), func(entry string) bool {
		name, value, _ := strings.Cut(entry, "=")
		// Inherited from a notebook, the backend may be one that only its kernel has.
		inherited := name == "MPLBACKEND" && strings.HasPrefix(value, "module://")
		return inherited || slices.Contains(withheld, name)
	})
	return interpreter.Environ(env, workDir)
}
