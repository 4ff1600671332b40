package notebook

import "golang.org/x/sys/unix"

// exchangeNames exchanges the files of two names in one step. It is a variable for tests.
var exchangeNames = func(a, b string) error {
	return unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
}
