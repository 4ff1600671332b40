package program

import (
	"cmp"
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
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
	x, y := release(a), release(b)
	return x != nil && y != nil && slices.Compare(x, y) < 0
}

// releasePattern is a version such as v1.2.3, v1.2.3-rc.1 or, for a build after a release,
// v1.2.3-4-gabcdef.
var releasePattern = regexp.MustCompile(`^v?(\d+)\.(\d+)\.(\d+)(?:-(alpha|beta|rc)\.?(\d+))?`)

// release returns the numbers of a release, which have its order, or nil. A pre-release
// comes before its release.
func release(version string) (numbers []int) {
	match := releasePattern.FindStringSubmatch(version)
	if match == nil {
		return nil
	}
	stage := map[string]string{"alpha": "0", "beta": "1", "rc": "2", "": "3"}[match[4]]
	for _, digits := range []string{match[1], match[2], match[3], stage, cmp.Or(match[5], "0")} {
		n, _ := strconv.Atoi(digits) // the largest int if there are too many
		numbers = append(numbers, n)
	}
	return numbers
}
