//go:build unix

package transfer

import (
	"io/fs"
	"syscall"
)

// hasSeveralLinks reports whether a file may have a second name.
func hasSeveralLinks(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return !ok || st.Nlink > 1
}
