//go:build !linux

package main

import (
	"context"
	"errors"
	"os/exec"
)

// errOnlyLinux is what a system without the needed namespaces and packages gets.
var errOnlyLinux = errors.New("make hosts needs Linux on x86-64")

const systemPath = "/usr/local/bin:/usr/bin:/bin"

type terminal struct{}

func supervise(context.Context, []string) error { return errOnlyLinux }

func raiseLoopback() error { return errOnlyLinux }

func (setting) command(context.Context, []string, []string) (*exec.Cmd, error) {
	return nil, errOnlyLinux
}

func output(*exec.Cmd) (string, error) { return "", errOnlyLinux }

func startInTerminal(*exec.Cmd) (*terminal, error) { return nil, errOnlyLinux }

func (*terminal) close() string { return "" }
