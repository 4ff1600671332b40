// Command executor runs on the VM: it keeps an ipykernel alive and serves it,
// signed, over a tunnel.
//
// This package is wiring only: settings, the order of start and end, and what a
// person at the console sees. What the program does is in the packages below. Start
// reading at run, then at executor.run.
package main

import (
	"context"
	"os"
)

// version is set by the build: -ldflags "-X main.version=…".
var version = "dev"

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Getenv, os.Stdin, os.Stdout, os.Stderr))
}
