package main

import (
	"context"
	"fmt"
	"io"
)

func doctor(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	fmt.Fprintln(stdout, "doctor")
	return 0
}
