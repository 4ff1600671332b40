package notebook

import "golang.org/x/sys/unix"

// exchangeNames exchanges the files of two names in one step. It is a variable for tests.
var exchangeNames = func(a, b string) error { return unix.RenamexNp(a, b, unix.RENAME_SWAP) }
