package program

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"time"

	"colabrelay/shared/bounded"
)

// Bounds of the question for a program's version. A host may be set up to start any
// program.
const (
	versionWait = 5 * time.Second
	maxVersion  = 4 << 10 // bytes of output
)

var versionPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.+_-]{0,63}$`)

// Version returns the version that a relay prints. It runs the program with the argument
// "version" and without input, for at most five seconds, and accepts at most 4 KiB.
func Version(ctx context.Context, path string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, versionWait)
	defer cancel()
	out := &bounded.Buffer{Max: maxVersion}
	cmd := exec.CommandContext(ctx, path, "version")
	cmd.Stdout = out
	cmd.WaitDelay = time.Second // a child may hold the output open
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("ask %q for its version: %v", path, err)
	}
	line, _, _ := strings.Cut(string(out.Bytes()), "\n")
	words := strings.Fields(line)
	if len(words) == 0 || !versionPattern.MatchString(words[len(words)-1]) {
		return "", fmt.Errorf("ask %q for its version: it prints none", path)
	}
	return words[len(words)-1], nil
}

// older reports whether a is an older release than b. It is false for other builds.
func older(a, b string) bool {
	var x, y [3]int
	if !release(a, &x) || !release(b, &y) {
		return false
	}
	for i := range x {
		if x[i] != y[i] {
			return x[i] < y[i]
		}
	}
	return false
}

// release reads the numbers of a version such as v1.2.3 or v1.2.3-4-gabcdef.
func release(version string, numbers *[3]int) bool {
	n, _ := fmt.Sscanf(strings.TrimPrefix(version, "v"), "%d.%d.%d", &numbers[0], &numbers[1], &numbers[2])
	return n == 3
}
