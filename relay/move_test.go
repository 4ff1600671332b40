package main

import (
	"bytes"
	"context"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"colabrelay/relay/client"
	"colabrelay/relay/hint"
	"colabrelay/relay/transfer"
	"colabrelay/shared/auth"
	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/fakevm"
)

// startVM is a VM with files, a user who set it as the runtime, and that user's
// folder, where the program is started.
func startVM(t *testing.T) (vm *fakevm.VM, getenv func(string) string, dir string) {
	t.Helper()
	dir = home(t)
	t.Chdir(dir)
	vm = fakevm.Start(t)
	return vm, environ("COLAB_URL", vm.URL, "COLAB_SECRET", vm.Secret.Reveal()), dir
}

func write(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// settled replaces what differs from run to run: the time taken.
func settled(out string) string { return regexp.MustCompile(`in \d+ s`).ReplaceAllString(out, "in T") }

func TestGetAndPutSayWhereItIs(t *testing.T) {
	vm, getenv, dir := startVM(t)
	one, two := []byte("one\n"), []byte("the second one\n")
	write(t, filepath.Join(dir, "in", "a.csv"), one)
	write(t, filepath.Join(dir, "in", "sub", "b.csv"), two)
	if err := os.Mkdir(filepath.Join(dir, "there"), 0o700); err != nil {
		t.Fatal(err)
	}
	vm.Put("r/x.csv", one)
	vm.Put("r/sub/y.csv", two)
	sha := fakevm.Digest(one)
	for _, c := range []struct{ args, want string }{
		{"get r/x.csv", "DIR/x.csv: 4 B, in T, SHA-256 " + sha},
		{"get r/x.csv", "DIR/x.csv: 4 B, unchanged, SHA-256 " + sha},
		{"get r/x.csv y.csv", "DIR/y.csv: 4 B, in T, SHA-256 " + sha},
		{"get r/x.csv there", "DIR/there/x.csv: 4 B, in T, SHA-256 " + sha},
		{"get r/x.csv there/", "DIR/there/x.csv: 4 B, unchanged, SHA-256 " + sha},
		{"get r/x.csv new/folder/", "DIR/new/folder/x.csv: 4 B, in T, SHA-256 " + sha},
		{"get r/x.csv new/name.csv", "DIR/new/name.csv: 4 B, in T, SHA-256 " + sha},
		{"get r/x.csv .", "DIR/x.csv: 4 B, unchanged, SHA-256 " + sha},
		{"get r/x.csv DIR/abs.csv", "DIR/abs.csv: 4 B, in T, SHA-256 " + sha},
		{"get r", "DIR/r: 2 files, 19 B, in T"},
		{"get r", "DIR/r: 2 files, 19 B, 2 unchanged, in T"},
		{"get r copy", "DIR/copy: 2 files, 19 B, in T"},
		{"get r copy", "DIR/copy: 2 files, 19 B, 2 unchanged, in T"},
		{"get r there/", "DIR/there/r: 2 files, 19 B, in T"},
		{"put in/a.csv", "/content/a.csv: 4 B, in T, SHA-256 " + sha},
		{"put in/a.csv", "/content/a.csv: 4 B, unchanged, SHA-256 " + sha},
		{"put in/a.csv z/", "/content/z/a.csv: 4 B, in T, SHA-256 " + sha},
		{"put --runtime env in/sub/b.csv a.csv", "/content/a (1).csv: 15 B, in T, SHA-256 " + fakevm.Digest(two)},
		{"put --overwrite in/sub/b.csv a.csv", "/content/a.csv: 15 B, in T, SHA-256 " + fakevm.Digest(two)},
		{"put in", "/content/in: 2 files, 19 B, in T"},
		{"put in", "/content/in: 2 files, 19 B, 2 unchanged, in T"},
	} {
		code, out, errs := relay(t, getenv, "", strings.Fields(strings.ReplaceAll(c.args, "DIR", dir))...)
		if got := strings.ReplaceAll(settled(out), dir, "DIR"); code != 0 || got != c.want+"\n" || errs != "" {
			t.Errorf("%s: %d\n%swant\n%s\n%s", c.args, code, got, c.want, errs)
		}
	}
	for path, want := range map[string][]byte{"x.csv": one, "there/x.csv": one, "r/sub/y.csv": two, "there/r/x.csv": one} {
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s holds %q: %v", path, got, err)
		}
	}
}

func TestGetNamesTheFilesThatGetAnotherName(t *testing.T) {
	vm, getenv, dir := startVM(t)
	vm.Put("r/a.txt", []byte("1"))
	vm.Put("r/\x1b[2Jx", []byte("2"))
	if code, out, errs := relay(t, getenv, "", "get", "r"); code != 0 || !strings.Contains(errs, `note: "/content/r/\x1b[2Jx" has a different name here: "_[2Jx"`) {
		t.Fatalf("%d: %s%s", code, out, errs)
	}
	write(t, filepath.Join(dir, "r", "a.txt"), []byte("3"))
	for _, unchanged := range []string{"1 unchanged", "2 unchanged"} {
		code, out, errs := relay(t, getenv, "", "get", "r")
		if code != 0 || !strings.Contains(out, unchanged) || !strings.Contains(errs, `note: "/content/r/a.txt" has a different name here: "a (1).txt"`) {
			t.Errorf("%d: %s%s", code, out, errs)
		}
	}
}

func TestGetAndPutFailWithANextStep(t *testing.T) {
	vm, getenv, dir := startVM(t)
	vm.Put("x", []byte("x"))
	write(t, filepath.Join(dir, "local"), []byte("l"))
	full := func(_ context.Context, r *http.Request) error {
		if r.Method == http.MethodPut {
			return &contract.Error{Code: contract.CodeDiskFull, Message: "the disk is full", Hint: "delete something"}
		}
		return nil
	}
	gone := environ("COLAB_URL", "http://127.0.0.1:1", "COLAB_SECRET", vm.Secret.Reveal())
	stranger := environ("COLAB_URL", vm.URL, "COLAB_SECRET", auth.GenerateSecret().Reveal())
	for _, c := range []struct {
		name   string
		getenv func(string) string
		args   []string
		hook   fakevm.Hook
		want   []string
	}{
		{"nothing there", getenv, []string{"get", "none"}, nil, []string{`relay: downloading "none": not_found`}},
		{"no local file", getenv, []string{"put", "none"}, nil, []string{"relay: ", `none`}},
		{"an empty name", getenv, []string{"get", ""}, nil, []string{"REMOTE is empty"}},
		{"a file with NUL", getenv, []string{"put", "a\x00b"}, nil, []string{"not a usable local path", "next step: "}},
		{"into a file", getenv, []string{"get", "x", "local/"}, nil, []string{"not a usable local path", "next step: "}},
		{"a name with NUL", getenv, []string{"get", "x", "a\x00b"}, nil, []string{"next step: Give the file another name"}},
		{"VM full", getenv, []string{"put", "local"}, full, []string{"disk_full", "next step: Free disk space on the VM"}},
		{"wrong secret", stranger, []string{"get", "x"}, nil, []string{"wrong_secret", "next step: ", "relay pair"}},
		{"nothing paired", environ(), []string{"get", "x"}, nil, []string{"not paired with a runtime yet", "relay pair"}},
		{"no such runtime", getenv, []string{"get", "--runtime", "other", "x"}, nil, []string{`"other"`}},
		{"wrong settings", environ("RELAY_HOLD", "soon"), []string{"get", "x"}, nil, []string{"RELAY_HOLD"}},
		{"no argument", getenv, []string{"get"}, nil, []string{"accepts between 1 and 2"}},
		{"the VM is gone", gone, []string{"put", "local"}, nil, []string{"unreachable", "next step: "}},
	} {
		if c.hook != nil {
			vm.On(c.hook)
		}
		code, out, errs := relay(t, c.getenv, "", c.args...)
		if code != 1 || out != "" {
			t.Errorf("%s: %d %q", c.name, code, out)
		}
		for _, want := range c.want {
			if !strings.Contains(errs, want) {
				t.Errorf("%s: %q is not in %q", c.name, want, errs)
			}
		}
	}
}

// large is three parts of a transfer and a bit.
const large = 12<<20 + 345

func randomBytes(n int) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{1}).Read(b)
	return b
}

// output may be written and read at once.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

func TestCtrlCStopsAndTheSameCommandResumes(t *testing.T) {
	vm, getenv, dir := startVM(t)
	content := randomBytes(large)
	vm.Put("big.bin", content)
	write(t, filepath.Join(dir, "local.bin"), content)
	for _, c := range []struct {
		method string
		args   []string
	}{
		{"GET " + contract.PathContent, []string{"get", "big.bin"}},
		{"PUT " + contract.PathUploads, []string{"put", "local.bin"}},
	} {
		ctx, interrupt := context.WithCancel(t.Context())
		var seen, waiting atomic.Int32
		vm.On(func(request context.Context, r *http.Request) error {
			if !strings.HasPrefix(r.Method+" "+r.URL.Path, c.method) || seen.Add(1) == 1 {
				return nil
			}
			if waiting.Add(1) == 3 { // all parts that are left: the first one has come or comes
				interrupt()
			}
			<-request.Done()
			return fakevm.ErrGone
		})
		var out, errs output
		code := run(ctx, c.args, getenv, streams{strings.NewReader(""), &out, &errs})
		if code != 1 || out.String() != "" || !strings.Contains(errs.String(), "relay: stopped at ") || !strings.Contains(errs.String(), "the same command goes on from there") {
			t.Errorf("%v: %d %q %q", c.args, code, out.String(), errs.String())
		}
		vm.On(func(context.Context, *http.Request) error { return nil })
		code, again, _ := relay(t, getenv, "", c.args...)
		if code != 0 || !strings.Contains(again, fakevm.Digest(content)) {
			t.Errorf("%v again: %d %q", c.args, code, again)
		}
		interrupt()
	}
}

func TestACutIsWaitedOut(t *testing.T) {
	vm, getenv, dir := startVM(t)
	content := randomBytes(large)
	vm.Put("big.bin", content)
	var cuts atomic.Int32
	vm.On(func(_ context.Context, r *http.Request) error {
		if r.URL.Path == contract.PathContent && cuts.Add(1) <= 5 {
			return fakevm.ErrGone
		}
		return nil
	})
	code, out, errs := relay(t, getenv, "", "get", "big.bin")
	if code != 0 || !strings.Contains(out, fakevm.Digest(content)) || cuts.Load() <= 5 {
		t.Errorf("%d %q %q after %d cuts", code, out, errs, cuts.Load())
	}
	if got, _ := os.ReadFile(filepath.Join(dir, "big.bin")); !bytes.Equal(got, content) {
		t.Error("the file is another one")
	}
}

func TestEveryErrorOfATransferHasANextStep(t *testing.T) {
	for _, err := range []error{
		transfer.ErrChanged, transfer.ErrLocalDisk, transfer.ErrBusy, transfer.ErrForbiddenName, transfer.ErrLocalPath,
		transfer.ErrNotRegular, transfer.ErrTooMany, transfer.ErrSomeFailed,
		&contract.Error{Code: contract.CodeDiskFull}, &contract.Error{Hint: "h"}, &client.Error{Hint: "h"},
	} {
		if hint.Person(err) == "" {
			t.Errorf("%v: no next step", err)
		}
	}
	if step := hint.Person(os.ErrClosed); step != "" {
		t.Errorf("a next step out of nothing: %q", step)
	}
}

func TestLocalTarget(t *testing.T) {
	for local, want := range map[string]transfer.Local{
		"":         {Dir: "."},
		".":        {Dir: "."},
		"..":       {Dir: ".."},
		"../..":    {Dir: "../.."},
		"/":        {Dir: "/"},
		"a":        {Dir: ".", Name: "a"},
		"a/":       {Dir: "a"},
		"a/b":      {Dir: "a", Name: "b"},
		"/a":       {Dir: "/", Name: "a"},
		"../a":     {Dir: "..", Name: "a"},
		"a/../b":   {Dir: ".", Name: "b"},
		"-weird  ": {Dir: ".", Name: "-weird  "},
	} {
		if got := localTarget(local); got != want {
			t.Errorf("%q: %+v, want %+v", local, got, want)
		}
	}
}

func TestTheBarSaysWhyItWaits(t *testing.T) {
	vm, getenv, _ := startVM(t)
	set := settings{getenv: getenv}
	log := &away{}
	runtimes := newRuntimes(set.get, nil, slogOf(log))
	defer runtimes.close()
	target, err := runtimes.resolve("env")
	if err != nil {
		t.Fatal(err)
	}
	ask := func() {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		_, _ = target.Client.Kernel(ctx)
	}
	vm.On(func(context.Context, *http.Request) error { return fakevm.ErrGone })
	ask()
	var meter = told(transfer.Progress{Stage: transfer.StageMoving, Done: 37, Total: 100})
	_, at := meter.Last()
	if got := standing(meter, log, at.Add(3*time.Second)); !strings.HasPrefix(got, "37 % of 100 B, waiting for the VM: unreachable: ") {
		t.Errorf("while the VM is away: %q", got)
	}
	if got := standing(meter, log, at.Add(time.Second)); strings.Contains(got, "waiting") {
		t.Errorf("just after something moved: %q", got)
	}
	vm.On(func(context.Context, *http.Request) error { return nil })
	ask()
	if got := standing(meter, log, at.Add(3*time.Second)); strings.Contains(got, "waiting") {
		t.Errorf("once it is back: %q", got)
	}
}
