package main

import (
	"bytes"
	"context"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"colabrelay/relay/client"
	"colabrelay/relay/config/configtest"
	"colabrelay/relay/hint"
	"colabrelay/relay/progress"
	"colabrelay/relay/terminal"
	"colabrelay/relay/transfer"
	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/fakevm"
	"colabrelay/shared/e2e/harness"
)

// startVM starts a fake VM for a new user. It returns an environment that names the VM,
// and the user's home folder, which is the current folder.
func startVM(t *testing.T) (vm *fakevm.VM, getenv func(string) string, dir string) {
	t.Helper()
	dir = configtest.Home(t)
	t.Chdir(dir)
	vm = fakevm.Start(t)
	return vm, configtest.Environ("COLAB_URL", vm.URL, "COLAB_SECRET", vm.Secret.Reveal()), dir
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

func TestGetReportsFilesThatGetAnotherName(t *testing.T) {
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

// large is the size of a file of a little more than three parts.
const large = 12<<20 + 345

func randomBytes(n int) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{1}).Read(b)
	return b
}

func TestCtrlCStopsATransferAndTheSameCommandResumesIt(t *testing.T) {
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
			if waiting.Add(1) == 3 { // all other parts: the first one has arrived or is about to
				interrupt()
			}
			<-request.Done()
			return fakevm.ErrGone
		})
		var out, errs harness.Output
		code := run(ctx, append([]string{commandName}, c.args...), getenv, terminal.Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
		if code != 1 || out.String() != "" || !strings.Contains(errs.String(), "colab-relay: stopped at ") || !strings.Contains(errs.String(), "run the same command again to resume") {
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

func TestATransferSurvivesBrokenConnections(t *testing.T) {
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
		t.Error("the file has other content")
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
		t.Errorf("a next step without a reason: %q", step)
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

func TestTheProgressLineSaysWhyItWaits(t *testing.T) {
	vm := fakevm.Start(t)
	var newest lastAttempt
	c, err := client.New(client.Config{BaseURL: vm.URL, Secret: vm.Secret, OnAttempt: newest.record})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	request := func() {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		_, _ = c.Kernel(ctx)
	}
	vm.On(func(context.Context, *http.Request) error { return fakevm.ErrGone })
	request()
	var meter progress.Meter
	meter.Report(transfer.Progress{Stage: transfer.StageMoving, Done: 37, Total: 100})
	_, at := meter.Last()
	if got := progressLine(&meter, newest.failure(), at.Add(3*time.Second)); !strings.HasPrefix(got, "37% of 100 B, waiting for the VM: unreachable: ") {
		t.Errorf("during the outage: %q", got)
	}
	if got := progressLine(&meter, newest.failure(), at.Add(time.Second)); strings.Contains(got, "waiting") {
		t.Errorf("shortly after the last progress: %q", got)
	}
	vm.On(func(context.Context, *http.Request) error { return nil })
	request()
	if got := progressLine(&meter, newest.failure(), at.Add(3*time.Second)); strings.Contains(got, "waiting") {
		t.Errorf("after the outage: %q", got)
	}
}
