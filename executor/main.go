// Command executor runs on the VM: it keeps an ipykernel alive and serves it over a tunnel,
// signed and encrypted.
//
// This package is wiring only: settings, the order of start and end, and what a
// person at the console sees. Start reading at run, then at executor.run.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// version is set by the build: -ldflags "-X main.version=…".
var version = "dev"

// programName is the name of this program's file, which a person types.
var programName = filepath.Base(os.Args[0])

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Getenv, os.Stdin, os.Stdout, os.Stderr))
}

// run is the whole program; it returns the exit code. Only run reads the
// environment.
func run(ctx context.Context, args []string, getenv func(string) string, stdin io.Reader, stdout, stderr io.Writer) int {
	command := ""
	if len(args) > 0 && slices.Contains([]string{"version", "--version", "doctor", "enroll"}, args[0]) {
		command, args = args[0], args[1:]
	}
	if command == "version" || command == "--version" {
		fmt.Fprintln(stdout, version)
		return 0
	}
	getenv = withholdSecrets(getenv)
	if command == "enroll" {
		return enroll(ctx, args, getenv, stdin, stdout, stderr)
	}
	cfg, err := config{doctor: command == "doctor"}.parse(args, getenv, stdout)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		complain(stderr, err)
		return 2
	}
	if command == "doctor" {
		return doctor(ctx, cfg, getenv, stdout)
	}
	if serve(ctx, cfg, os.Environ(), stdout, stderr) != nil {
		return 1
	}
	return 0
}

// complain writes each fault on a separate line.
func complain(w io.Writer, err error) {
	for line := range strings.SplitSeq(err.Error(), "\n") {
		fmt.Fprintln(w, "executor:", line)
	}
}
