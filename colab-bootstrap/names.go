package bootstrap

import (
	"strings"

	"colabrelay/shared/lazy"
)

// defaultRuntime is the runtime whose secrets have no suffix.
const defaultRuntime = "default"

// SecretName returns the name of a runtime's secret on the page, such as EXECUTOR_SECRET
// for the default runtime and EXECUTOR_SECRET_MY_LAB for my-lab. Letters become upper
// case; every other character except digits becomes an underscore. Runtime names are
// ASCII. Two runtimes may get the same secret name: code that makes secrets must refuse
// the second one. The cell has the same rule in Python.
func SecretName(base, runtime string) string {
	if runtime == "" || runtime == defaultRuntime {
		return base
	}
	return base + "_" + notInSecretName().ReplaceAllString(strings.ToUpper(runtime), "_")
}

var notInSecretName = lazy.Regexp(`[^A-Z0-9]`)
