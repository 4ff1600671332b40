package bootstrap

import "strings"

// defaultRuntime is the runtime whose secrets have no name behind theirs.
const defaultRuntime = "default"

// SecretName is what the page's secret called base is called for a runtime: EXECUTOR_SECRET
// for the default one, EXECUTOR_SECRET_MY_LAB for my-lab. Letters become upper case, all
// that is no letter or digit an underscore; the names of runtimes are ASCII. Two runtimes
// may get the same name this way, and whoever gives out secrets must refuse the second.
// The cell has the same rule in Python.
func SecretName(base, runtime string) string {
	if runtime == "" || runtime == defaultRuntime {
		return base
	}
	return base + "_" + strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z':
			return r - 'a' + 'A'
		case 'A' <= r && r <= 'Z', '0' <= r && r <= '9':
			return r
		}
		return '_'
	}, runtime)
}
