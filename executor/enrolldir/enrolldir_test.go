package enrolldir

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/gofrs/flock"

	"colabrelay/shared/keep"
	"colabrelay/shared/tier"
	"colabrelay/shared/within"
)

func folder(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "folder")
	must(t, os.Mkdir(dir, 0o700))
	return dir
}

func open(t *testing.T, path string) *Dir {
	t.Helper()
	d, err := Open(path)
	must(t, err)
	return d
}

func TestAFolderBelongsToOneExecutor(t *testing.T) {
	path := folder(t)
	d := open(t, path)
	if _, err := Open(path); !errors.Is(err, keep.ErrLocked) {
		t.Errorf("a second executor: %v", err)
	}
	lock := flock.New(filepath.Join(path, lockFile))
	if free, err := lock.TryRLock(); free || err != nil {
		t.Errorf("a cell finds it free: %v, %v", free, err)
	}
	d.Close("")
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder is still there: %v", err)
	}
}

func TestCloseTouchesNoFileOfOthers(t *testing.T) {
	path := folder(t)
	d := open(t, path)
	other := filepath.Join(path, "somebody's")
	must(t, os.WriteFile(other, nil, 0o600))
	d.Close("")
	if entries, err := os.ReadDir(path); err != nil || len(entries) != 1 {
		t.Errorf("left are %v, %v", entries, err)
	}
}

func TestOnlyARegularFileIsAGrant(t *testing.T) {
	path := folder(t)
	d := open(t, path)
	defer d.Close("")
	must(t, syscall.Mkfifo(filepath.Join(path, grantFile), 0o600))
	if text, err := d.AwaitGrant(t.Context(), 100); err == nil || text != "" {
		t.Errorf("%q, %v", text, err)
	}
}

// holdVariable makes this test's program an executor in the folder that it names.
const holdVariable = "ENROLLDIR_HOLD"

func TestMain(m *testing.M) {
	if folder := os.Getenv(holdVariable); folder != "" {
		hold(folder)
		return
	}
	os.Exit(m.Run())
}

// hold keeps a folder locked until SIGTERM.
func hold(folder string) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	d, err := Open(folder)
	fmt.Println("open:", err)
	if err == nil {
		<-ctx.Done()
		d.Close("")
	}
}

// executor is another process with a folder of its own.
type executor struct {
	folder string
	ended  chan error
}

func startExecutor(t *testing.T, folder string) *executor {
	t.Helper()
	must(t, os.Mkdir(folder, 0o700))
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), holdVariable+"="+folder)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "open: <nil>\n" {
		t.Fatalf("%q, %v", line, err)
	}
	e := &executor{folder: folder, ended: make(chan error, 1)}
	go func() { e.ended <- cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return e
}

func TestOnlyExecutorsThatNoRelayUsedAreEnded(t *testing.T) {
	tier.Long(t)
	temp := t.TempDir()
	named := func(name string) string { return filepath.Join(temp, "colab-relay-enroll-"+name) }
	unused, used := startExecutor(t, named("a")), startExecutor(t, named("b"))
	other := startExecutor(t, filepath.Join(temp, "another-folder"))
	open := startExecutor(t, named("c"))
	if err := os.Chmod(open.folder, 0o755); err != nil { // others could have written its pid
		t.Fatal(err)
	}
	must(t, (&Dir{path: used.folder}).WriteUsed())
	ended := named("d") // of an executor that was killed; the pid is that of this test
	must(t, os.Mkdir(ended, 0o700))
	for name, text := range map[string]string{lockFile: "", pidFile: fmt.Sprint(os.Getpid())} {
		must(t, os.WriteFile(filepath.Join(ended, name), []byte(text), 0o600))
	}
	for i := range maxEnded + 1 { // as other users may make them
		must(t, os.Mkdir(named(fmt.Sprintf("0%d", i)), 0o755))
	}
	own := named("own")
	must(t, os.Mkdir(own, 0o700))
	d, err := Open(own)
	must(t, err)
	defer d.Close("")
	ctx := within.Context(t)
	d.EndUnused(ctx)
	if ctx.Err() != nil {
		t.Error("it waited for something else")
	}
	if err := <-unused.ended; err != nil {
		t.Errorf("the unused executor ended with %v", err)
	}
	for _, e := range []*executor{used, other, open} {
		select {
		case err := <-e.ended:
			t.Errorf("the executor in %s ended: %v", e.folder, err)
		default:
		}
	}
}

// must ends the test on an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
