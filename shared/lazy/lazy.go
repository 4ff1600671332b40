// Package lazy makes what few calls of a program need when it is first needed. Compiling the
// regular expressions of all packages took a third of the time of `colab-relay version`.
package lazy

import (
	"regexp"
	"sync"
)

// Regexp returns a regular expression that is compiled at its first use. shared/arch compiles all.
func Regexp(expression string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}
