package kernel

import (
	"slices"
	"strconv"
	"strings"
)

// withheld are variables the kernel's code must not see: secrets of the
// executor and of the platform, and what would bind it to another notebook.
var withheld = []string{
	"EXECUTOR_SECRET", "EXECUTOR_SECRET_FILE", "NGROK_AUTHTOKEN", "NGROK_API_KEY",
	"KAGGLE_USER_SECRETS_TOKEN", "JPY_PARENT_PID", "JPY_SESSION_NAME",
}

// environ is the kernel's environment: the executor's own without what is
// withheld. JPY_PARENT_PID makes ipykernel end itself when the executor is gone.
func environ(base []string, parent int) []string {
	env := slices.DeleteFunc(slices.Clone(base), func(entry string) bool {
		name, value, _ := strings.Cut(entry, "=")
		// Inherited from a notebook, the backend may be one that only its kernel has.
		inherited := name == "MPLBACKEND" && strings.HasPrefix(value, "module://")
		return inherited || slices.Contains(withheld, name)
	})
	return append(env, "JPY_PARENT_PID="+strconv.Itoa(parent))
}
