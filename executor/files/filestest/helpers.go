package filestest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"colabrelay/shared/within"
)

// Timeout bounds what a test waits for.
const Timeout = within.Limit

// RealDir is a temporary folder whose path holds no links.
func RealDir(t testing.TB) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	Must(t, err)
	return dir
}

// Must ends the test if err is not nil.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// SHA is the SHA-256 of data in hex.
func SHA(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// Body is n bytes that differ from place to place.
func Body(n int) []byte {
	out := make([]byte, n)
	for i := range out {
		out[i] = byte(i*7 + i>>8*13 + i>>16)
	}
	return out
}

// Run calls run in the background until the test ends or stop is called.
func Run(t testing.TB, run func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		Must(t, <-ended)
	}
	t.Cleanup(stop)
	return stop
}

// Everything is the paths of all files and folders under dir, one a line.
func Everything(t testing.TB, dir string) string {
	t.Helper()
	var names []string
	Must(t, filepath.Walk(dir, func(path string, _ os.FileInfo, err error) error {
		names = append(names, path)
		return err
	}))
	return strings.Join(names, "\n")
}

// Exists reports whether there is anything at path, links not followed.
func Exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// AwaitTick waits until a change made now has another time than the last change of file.
func AwaitTick(t testing.TB, file string) {
	t.Helper()
	info, err := os.Stat(file)
	Must(t, err)
	probe := filepath.Join(t.TempDir(), "tick")
	within.Until(t, "the filesystem's clock has gone on", func() bool {
		Must(t, os.WriteFile(probe, nil, 0o600))
		now, err := os.Stat(probe)
		Must(t, err)
		return now.ModTime().After(info.ModTime().Add(time.Millisecond))
	})
}
