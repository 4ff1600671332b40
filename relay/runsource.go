package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"colabrelay/relay/remoterun"
	"colabrelay/relay/terminal"
	"colabrelay/shared/bounded"
)

// maxCode leaves room for JSON's escapes within contract.MaxBodyBytes.
const maxCode = 4 << 20

// source is what `colab-relay run` runs: code, or the notebook at a path.
type source struct {
	code     remoterun.Code
	notebook string
}

// source reads what args and -c name.
func (o *runOptions) source(ctx context.Context, args []string) (source, error) {
	switch {
	case o.given && len(args) > 0:
		return source{}, usagef("give either a file or -c CODE, not both")
	case o.given:
		return o.cell(ctx, strings.NewReader(o.code), false)
	case len(args) == 0 && terminal.Is(o.std.In):
		return source{}, usagef("nothing to run: give a file, -c CODE, or code on stdin")
	case len(args) == 0 || args[0] == "-":
		if len(args) > 1 {
			return source{}, usagef("unexpected argument %q: code on stdin takes no arguments", args[1])
		}
		return o.cell(ctx, o.std.In, true)
	}
	if strings.EqualFold(filepath.Ext(args[0]), ".ipynb") {
		return o.notebook(args)
	}
	f, err := os.Open(args[0])
	if err != nil {
		return source{}, fmt.Errorf("%w: name a file on this computer, or give code with -c", err)
	}
	defer f.Close()
	text, err := readCode(f)
	if err != nil {
		return source{}, err
	}
	return source{code: remoterun.Code{Text: text, Program: args[0], Arguments: args[1:], Timeout: o.timeout}}, nil
}

// cell reads code that runs like a notebook's cell.
func (o *runOptions) cell(ctx context.Context, in io.Reader, fromStdin bool) (source, error) {
	text, err := terminal.UntilInterrupted(ctx, func() (string, error) { return readCode(in) })
	return source{code: remoterun.Code{Text: text, FromStdin: fromStdin, Timeout: o.timeout}}, err
}

func (o *runOptions) notebook(args []string) (source, error) {
	switch {
	case len(args) > 1:
		return source{}, usagef("unexpected argument %q: a notebook takes no arguments", args[1])
	case o.detach:
		return source{}, usagef("--detach: this computer starts a notebook's cells one after another; run it without --detach")
	}
	return source{notebook: args[0]}, nil
}

func readCode(in io.Reader) (string, error) {
	b, err := bounded.ReadAll(in, maxCode)
	b = bytes.TrimPrefix(b, []byte("\ufeff")) // some editors on Windows write it
	switch {
	case errors.Is(err, bounded.ErrTooLong):
		return "", fmt.Errorf("the code is %v: put data into a file on the VM with `colab-relay put`", err)
	case err != nil:
		return "", fmt.Errorf("read the code: %v", err)
	case len(bytes.TrimSpace(b)) == 0:
		return "", errors.New("nothing to run: the code is empty")
	case !utf8.Valid(b):
		return "", errors.New("the code is not UTF-8 text: save it as UTF-8")
	}
	return string(b), nil
}
