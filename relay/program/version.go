package program

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"colabrelay/relay/environ"
	"colabrelay/shared/bounded"
	"colabrelay/shared/lazy"
)

// Bounds of the question for a program's version. A host may be set up to start any
// program.
const (
	versionWait = 5 * time.Second
	maxVersion  = 4 << 10 // bytes of output
)

var versionPattern = lazy.Regexp(`^[A-Za-z0-9][A-Za-z0-9.+_-]{0,63}$`)

// Version returns the version that a relay prints. It runs the program with the argument
// "version" and without input and secrets, for at most five seconds, and accepts at most 4 KiB.
func Version(ctx context.Context, path string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, versionWait)
	defer cancel()
	out := &bounded.Buffer{Max: maxVersion}
	cmd := exec.CommandContext(ctx, path, "version")
	cmd.Env = environ.Only(os.Environ(), environ.Basic)
	cmd.Stdout = out
	cmd.WaitDelay = time.Second // a child may hold the output open
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("ask %q for its version: %v", path, err)
	}
	line, _, _ := strings.Cut(string(out.Bytes()), "\n")
	words := strings.Fields(line)
	if len(words) == 0 || !versionPattern().MatchString(words[len(words)-1]) {
		return "", fmt.Errorf("ask %q for its version: it prints none", path)
	}
	return words[len(words)-1], nil
}

// older reports whether a is an older release than b. It is false for other builds.
func older(a, b string) bool {
	x, y := release(a), release(b)
	return x != nil && y != nil && slices.Compare(x, y) < 0
}

// releasePattern is a version such as v1.2.3, v1.2.3-rc.1 or, for a build after a release,
// v1.2.4-dev.5.gabcdef or v1.2.3-rc.1.dev.5.gabcdef.
var releasePattern = lazy.Regexp(`^v?(\d+)\.(\d+)\.(\d+)(?:-(dev|alpha|beta|rc)\.?(\d+)(?:\.dev\.(\d+))?)?`)

// release returns the numbers of a release or of a build after one, which have its order, or
// nil. A pre-release comes before its release. A build before all releases has no order.
func release(version string) (numbers []int) {
	match := releasePattern().FindStringSubmatch(version)
	if match == nil || strings.HasPrefix(version, "v0.0.0-dev") {
		return nil
	}
	stage := map[string]string{"dev": "0", "alpha": "1", "beta": "2", "rc": "3", "": "4"}[match[4]]
	for _, digits := range []string{match[1], match[2], match[3], stage, cmp.Or(match[5], "0"), cmp.Or(match[6], "0")} {
		n, _ := strconv.Atoi(digits) // the largest int if there are too many
		numbers = append(numbers, n)
	}
	return numbers
}
