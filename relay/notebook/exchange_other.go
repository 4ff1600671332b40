//go:build !linux && !darwin

package notebook

import "errors"

// exchangeNames fails: the system cannot exchange two names. It is a variable for tests.
var exchangeNames = func(_, _ string) error { return errors.ErrUnsupported }
