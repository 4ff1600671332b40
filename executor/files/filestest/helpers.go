// Package filestest is what the tests of executor/files and executor/uploads share: a
// working directory full of traps, and paths that must be refused. It must not import
// either of them. Start reading at New.
package filestest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
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

// Tree is a working directory with everything hostile in it, beside folders that must
// stay out of reach.
type Tree struct{ Workdir, Drive, Secret, State string }

// New makes a tree in a temporary folder.
func New(t testing.TB) Tree {
	t.Helper()
	base := RealDir(t)
	tr := Tree{
		Workdir: filepath.Join(base, "work"),
		Drive:   filepath.Join(base, "drive"),
		Secret:  filepath.Join(base, "secret"),
		State:   filepath.Join(base, "work", ".colab-relay"),
	}
	for _, dir := range []string{"work/.colab-relay", "work/data/deep", "drive/.targets/abc", "secret", "tmp"} {
		Must(t, os.MkdirAll(filepath.Join(base, dir), 0o755))
	}
	t.Setenv("TMPDIR", filepath.Join(base, "tmp"))
	for _, file := range []string{"work/a.txt", "work/data/b.csv", "drive/.targets/abc/model.bin", "secret/key", "work/.colab-relay/log"} {
		Must(t, os.WriteFile(filepath.Join(base, file), []byte("hello"), 0o600))
	}
	for link, target := range tr.links() {
		Must(t, os.Symlink(target, filepath.Join(base, link)))
	}
	return tr
}

func (tr Tree) links() map[string]string {
	return map[string]string{
		"work/inside":      "data",
		"work/up-and-in":   "data/../data/deep",
		"work/to-drive":    tr.Drive,
		"work/out":         tr.Secret,
		"work/out-rel":     "../secret",
		"work/out-and-in":  "../secret/../work/data",
		"work/etc":         "/etc",
		"work/loop":        "loop",
		"work/ping":        "pong",
		"work/pong":        "ping",
		"work/broken":      "nowhere",
		"work/to-state":    ".colab-relay",
		"work/null":        "/dev/null",
		"work/proc":        "/proc/self/root",
		"work/hop1":        filepath.Join(tr.Workdir, "hop2"),
		"work/hop2":        tr.Secret,
		"drive/shortcut":   filepath.Join(tr.Drive, ".targets", "abc"),
		"work/through":     "out/../data",
		"work/through-top": "../../../../../../../../../../etc/passwd",
	}
}

// partSuffix is that of executor/files.
const partSuffix = ".colab-part"

// Refusals are the errors that hostile paths are refused with.
type Refusals struct{ Forbidden, IsDir, NotDir, NotRegular, BadPath error }

// Hostile makes traps in the working directory. It returns paths, and the error that
// opening each of them as a file must give.
func (tr Tree) Hostile(t testing.TB, is Refusals) map[string]error {
	t.Helper()
	tr.makeTraps(t)
	return map[string]error{
		"":                            is.IsDir,
		"data":                        is.IsDir,
		tr.Workdir:                    is.IsDir,
		"..":                          is.Forbidden,
		"../secret/key":               is.Forbidden,
		tr.Workdir + "/../secret/key": is.Forbidden,
		tr.Secret + "/key":            is.Forbidden,
		"/etc/passwd":                 is.Forbidden,
		"/proc/self/environ":          is.Forbidden,
		"/dev/zero":                   is.Forbidden,
		"out/key":                     is.Forbidden,
		"hop1/key":                    is.Forbidden,
		"through-top":                 is.Forbidden,
		"null":                        is.Forbidden,
		".colab-relay/log":            is.Forbidden,
		"/content/.colab-relay/log":   is.Forbidden,
		"to-state/log":                is.Forbidden,
		"to-log":                      is.Forbidden,
		".mine" + partSuffix:          is.Forbidden,
		"to-part":                     is.Forbidden,
		"fifo":                        is.NotRegular,
		"sock":                        is.NotRegular,
		"loop":                        is.BadPath,
		"a\x00b":                      is.BadPath,
		strings.Repeat("a", 256):      is.BadPath,
		"a.txt/x":                     is.NotDir,
	}
}

func (tr Tree) makeTraps(t testing.TB) {
	t.Helper()
	Must(t, syscall.Mkfifo(filepath.Join(tr.Workdir, "fifo"), 0o600))
	Must(t, os.Symlink(filepath.Join(tr.State, "log"), filepath.Join(tr.Workdir, "to-log")))
	Must(t, os.WriteFile(filepath.Join(tr.Workdir, ".mine"+partSuffix), []byte("half"), 0o600))
	Must(t, os.Symlink(".mine"+partSuffix, filepath.Join(tr.Workdir, "to-part")))
	t.Chdir(tr.Workdir) // the path of a socket has at most 107 bytes, so bind it by a short name
	l, err := net.Listen("unix", "sock")
	Must(t, err)
	t.Cleanup(func() { l.Close() })
}
