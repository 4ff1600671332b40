package transfer

import (
	"slices"
	"strings"
	"syscall"
)

// says reports whether the text of err ends with that of one of the others. The package that
// replaces files atomically passes on only the text of its errors, at the end of its own.
func says(err error, others ...syscall.Errno) bool {
	return err != nil && slices.ContainsFunc(others, func(e syscall.Errno) bool { return strings.HasSuffix(err.Error(), e.Error()) })
}
