// Package tmpdeps keeps go.mod whole while several hands work; it goes before the end.
package tmpdeps

import (
	_ "github.com/vbauerster/mpb/v8"
	_ "golang.org/x/term"
)
