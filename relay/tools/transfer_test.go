package tools

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"colabrelay/relay/client"
	"colabrelay/relay/hint"
	"colabrelay/relay/runtimes"
	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/fakevm"
	"colabrelay/shared/tier"
	"colabrelay/shared/within"
)

// serveVM is a host, a relay and a VM with files behind it.
func serveVM(t *testing.T, hold time.Duration) (h *host, vm *fakevm.VM, saveDir string) {
	t.Helper()
	vm, saveDir = fakevm.Start(t), filepath.Join(t.TempDir(), "saved")
	c, err := client.New(client.Config{BaseURL: vm.URL, Secret: vm.Secret})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	h = startHost(t, Config{
		Resolve: func(string) (runtimes.Runtime, error) {
			return runtimes.Runtime{Name: "test", URL: vm.URL, Client: c}, nil
		},
		SaveDir: saveDir, CheckpointDir: t.TempDir(), TransferDir: t.TempDir(), Hold: hold,
	})
	return h, vm, saveDir
}

// vmOnOwnClock is serveVM on a clock of the test's, as onOwnClock is.
func vmOnOwnClock(t *testing.T, hold time.Duration, test func(t *testing.T, h *host, vm *fakevm.VM, saveDir string)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		vm, saveDir := fakevm.New(), filepath.Join(t.TempDir(), "saved")
		rt := directly(t, vm.Secret, vm)
		h := startHost(t, Config{
			Resolve: func(string) (runtimes.Runtime, error) { return rt, nil },
			SaveDir: saveDir, CheckpointDir: t.TempDir(), Hold: hold,
		})
		test(t, h, vm, saveDir)
	})
}

// randomBytes don't compress, and are the same in each run of a test.
func randomBytes(n int) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{byte(n)}).Read(b)
	return b
}

// large is three parts of a transfer and a bit.
const large = 12<<20 + 345

// onlyFirst lets the first part of a file through and keeps the others until the
// client gives up.
func onlyFirst(vm *fakevm.VM, method, path string) {
	vm.On(func(ctx context.Context, r *http.Request) error {
		if r.Method == method && strings.HasPrefix(r.URL.Path, path) && r.URL.Query().Get("offset") != "0" {
			<-ctx.Done()
			return fakevm.ErrGone
		}
		return nil
	})
}

func calm(context.Context, *http.Request) error { return nil }

func mustHold(t *testing.T, path string, want []byte) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s contains %d bytes, want %d: %v", path, len(got), len(want), err)
	}
}

func write(t *testing.T, path string, content []byte) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestADownloadIsCheckedAndNeverReplacesAnotherFileUnasked(t *testing.T) {
	tier.Long(t)
	h, vm, dir := serveVM(t, 10*time.Second)
	first, second := randomBytes(large), []byte("another")
	get := func(args map[string]any) Download {
		t.Helper()
		args["remote_path"] = "/content/run 1/model.bin"
		return decode[Download](t, h.call("download_from_colab", args).Structured)
	}
	for i, c := range []struct {
		content []byte
		args    map[string]any
		status  string
		path    string
	}{
		{first, map[string]any{}, "done", "model.bin"},
		{first, map[string]any{}, "unchanged", "model.bin"},
		{second, map[string]any{}, "done", "model (1).bin"},
		{second, map[string]any{}, "unchanged", "model (1).bin"},
		{second, map[string]any{"overwrite": true}, "done", "model.bin"},
		{second, map[string]any{"local_filename": "a/b/c.bin"}, "done", "a/b/c.bin"},
		{second, map[string]any{"local_filename": "a/b/"}, "done", "a/b/model.bin"},
		{second, map[string]any{"local_filename": filepath.Join(dir, "a", "again.bin")}, "done", "a/again.bin"},
		{second, map[string]any{"local_filename": dir}, "unchanged", "model.bin"},
		{second, map[string]any{"local_filename": filepath.Join(dir, "a", "b") + "/"}, "unchanged", "a/b/model.bin"},
		{nil, map[string]any{"local_filename": "empty"}, "done", "empty"},
	} {
		vm.Put("run 1/model.bin", c.content)
		got := get(c.args)
		want := Download{LocalPath: filepath.Join(dir, c.path), Moved: Moved{
			Status: c.status, SizeBytes: int64(len(c.content)), SHA256: fakevm.Digest(c.content), Files: 1,
		}}
		if c.status == "done" {
			want.TransferredBytes = want.SizeBytes
		} else {
			want.Skipped = 1
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("case %d: %+v, want %+v", i, got, want)
		}
		mustHold(t, got.LocalPath, c.content)
	}
	mustHold(t, filepath.Join(dir, "model (1).bin"), second)
}

func TestADownloadNamesTheFilesThatGetAnotherName(t *testing.T) {
	h, vm, dir := serveVM(t, 10*time.Second)
	vm.Put("out/a.txt", []byte("1"))
	vm.Put("out/sub/b.txt", []byte("2"))
	get := func() Download {
		t.Helper()
		return decode[Download](t, h.call("download_from_colab", map[string]any{"remote_path": "/content/out"}).Structured)
	}
	if got := get(); len(got.Notes) != 0 {
		t.Errorf("%+v", got)
	}
	write(t, filepath.Join(dir, "out", "a.txt"), []byte("3"))
	for _, status := range []string{"done", "unchanged"} {
		got := get()
		if want := `“/content/out/a.txt” has a different name here: "a (1).txt"`; got.Status != status || len(got.Notes) != 1 || got.Notes[0] != want {
			t.Errorf("%+v, want the note %s", got, want)
		}
	}
}

func TestAFolderIsTransferredWithItsTree(t *testing.T) {
	h, vm, dir := serveVM(t, 10*time.Second)
	tree := map[string]string{"a.txt": "a", "sub/b.txt": "b", "sub/deep/it's \"c\".txt": "c", "empty.txt": ""}
	for name, content := range tree {
		vm.Put("out/"+name, []byte(content))
	}
	for _, skipped := range []int{0, len(tree)} {
		got := decode[Download](t, h.call("download_from_colab", map[string]any{"remote_path": "/content/out"}).Structured)
		sameFields(t, Moved{Files: len(tree), Skipped: skipped}, got.Moved, "Files", "Skipped", "SHA256")
		if got.LocalPath != filepath.Join(dir, "out") {
			t.Errorf("down: %+v", got)
		}
	}
	for name, content := range tree {
		mustHold(t, filepath.Join(dir, "out", name), []byte(content))
	}
	for _, skipped := range []int{0, len(tree)} {
		got := decode[Upload](t, h.call("upload_to_colab", map[string]any{"local_path": "out", "remote_path": "/content/back"}).Structured)
		sameFields(t, Moved{Files: len(tree), Skipped: skipped}, got.Moved, "Files", "Skipped")
		if got.RemotePath != "/content/back" {
			t.Errorf("up: %+v", got)
		}
	}
	for name, content := range tree {
		if got, ok := vm.File("back/" + name); !ok || string(got) != content {
			t.Errorf("%q holds %q on the VM", name, got)
		}
	}
}

func TestATransferThatOutlastsItsCallIsResumedByTheNext(t *testing.T) {
	tier.Long(t)
	content := randomBytes(large)
	for _, c := range []struct {
		tool, method, path string
		args               map[string]any
	}{
		{"download_from_colab", "GET", contract.PathContent, map[string]any{"remote_path": "/content/big", "local_filename": "x/", "overwrite": true, "runtime": "test"}},
		{"upload_to_colab", "PUT", contract.PathUploads, map[string]any{"local_path": "local/big"}},
	} {
		vmOnOwnClock(t, 3*time.Second, func(t *testing.T, h *host, vm *fakevm.VM, dir string) {
			vm.Put("big", content)
			write(t, filepath.Join(dir, "local", "big"), content)
			if c.tool == "upload_to_colab" {
				c.args["remote_path"] = "/content/up"
			}
			onlyFirst(vm, c.method, c.path)
			began := time.Now()
			r := h.call(c.tool, c.args)
			if took := time.Since(began); took > 6*time.Second {
				t.Errorf("%s: answered after %s", c.tool, took)
			}
			first := decode[Moved](t, r.Structured)
			if !r.outcome(t).Success {
				t.Fatalf("%s: %s", c.tool, r.Structured)
			}
			sameFields(t, Moved{Status: "partial", CanContinue: true, TransferredBytes: 4 << 20, SizeBytes: large}, first, "Status", "CanContinue", "TransferredBytes", "SizeBytes")
			if !strings.HasPrefix(first.NextCommand, c.tool+"(") || !strings.Contains(r.Content[0].Text, first.NextCommand) {
				t.Errorf("%s: next is %q", c.tool, first.NextCommand)
			}
			for name, value := range c.args {
				b, _ := json.Marshal(value)
				if !strings.Contains(first.NextCommand, name+"="+string(b)) {
					t.Errorf("%s: %s is not in %q", c.tool, name, first.NextCommand)
				}
			}
			vm.On(calm)
			second := decode[Moved](t, h.call(c.tool, c.args).Structured)
			want := Moved{Status: "done", ResumedFrom: 4 << 20, TransferredBytes: large - 4<<20, SHA256: fakevm.Digest(content)}
			sameFields(t, want, second, "Status", "CanContinue", "ResumedFrom", "TransferredBytes", "SHA256")
		})
	}
}

func TestAFolderThatOutlastsItsCallIsResumedByTheNext(t *testing.T) {
	vmOnOwnClock(t, 2*time.Second, func(t *testing.T, h *host, vm *fakevm.VM, dir string) {
		const files = 5
		for i := range files {
			vm.Put(fmt.Sprintf("tree/%d", i), randomBytes(contract.MaxBatchFile+1+i)) // each in its own request
		}
		var seen atomic.Int32
		vm.On(func(ctx context.Context, r *http.Request) error {
			if r.URL.Path == contract.PathContent && seen.Add(1) > 2 {
				<-ctx.Done()
				return fakevm.ErrGone
			}
			return nil
		})
		args := map[string]any{"remote_path": "tree"}
		first := decode[Download](t, h.call("download_from_colab", args).Structured)
		sameFields(t, Moved{Status: "partial", CanContinue: true, Files: files}, first.Moved, "Status", "CanContinue", "Files")
		if first.LocalPath != filepath.Join(dir, "tree") {
			t.Errorf("%+v", first)
		}
		vm.On(calm)
		second := decode[Download](t, h.call("download_from_colab", args).Structured)
		if second.Status != "done" || second.Skipped != 2 || first.TransferredBytes+second.TransferredBytes != second.SizeBytes {
			t.Errorf("%+v after %+v", second, first)
		}
	})
}

func TestAVMThatDisappearsInTheMiddleIsAWarning(t *testing.T) {
	vmOnOwnClock(t, 2*time.Second, func(t *testing.T, h *host, vm *fakevm.VM, _ string) {
		vm.Put("big", randomBytes(large))
		var seen atomic.Int32
		vm.On(func(_ context.Context, r *http.Request) error {
			if r.URL.Path == contract.PathContent && seen.Add(1) > 1 {
				return fakevm.ErrGone
			}
			return nil
		})
		r := h.call("download_from_colab", map[string]any{"remote_path": "big"})
		got, o := decode[Moved](t, r.Structured), r.outcome(t)
		if !o.Success || got.Status != "partial" || !strings.Contains(o.Warning, "could not continue") {
			t.Errorf("%s", r.Structured)
		}
		vm.On(func(_ context.Context, r *http.Request) error {
			if r.URL.Path == contract.PathContent {
				return fakevm.ErrGone
			}
			return nil
		})
		r = h.call("download_from_colab", map[string]any{"remote_path": "big"})
		got, o = decode[Moved](t, r.Structured), r.outcome(t)
		if o.Success || o.Error.Code != string(client.KindUnreachable) || got.Status != "partial" || !got.CanContinue || got.ResumedFrom == 0 {
			t.Errorf("a call that moved nothing: %s", r.Structured)
		}
	})
}

func TestASecondDownloadOfTheSameNameIsBusyAndACancelledOneIsResumed(t *testing.T) {
	tier.Long(t)
	h, vm, _ := serveVM(t, 20*time.Second)
	vm.Put("big", randomBytes(large))
	onlyFirst(vm, "GET", contract.PathContent)
	args := map[string]any{"remote_path": "big"}
	id, _ := h.begin("tools/call", params("download_from_colab", args))
	within.Until(t, "all parts are asked for", func() bool { return vm.Count("GET "+contract.PathContent) >= 4 })
	if o := h.call("download_from_colab", args).outcome(t); o.Error == nil || o.Error.Code != hint.CodeBusy {
		t.Errorf("%+v", o)
	}
	h.cancel(id)
	vm.On(calm)
	var got Moved
	within.Until(t, "the end of the cancelled call", func() bool {
		r := h.call("download_from_colab", args)
		o := r.outcome(t)
		got = decode[Moved](t, r.Structured)
		return o.Error == nil || o.Error.Code != hint.CodeBusy
	})
	if got.Status != "done" || got.ResumedFrom == 0 || got.ResumedFrom+got.TransferredBytes != large {
		t.Errorf("%+v", got)
	}
}

func TestProgressOfATransferIsInBytes(t *testing.T) {
	vmOnOwnClock(t, 3*time.Second, func(t *testing.T, h *host, vm *fakevm.VM, _ string) {
		vm.Put("big", randomBytes(large))
		onlyFirst(vm, "GET", contract.PathContent)
		p := params("download_from_colab", map[string]any{"remote_path": "big"})
		p["_meta"] = map[string]any{"progressToken": "t"}
		_, ch := h.begin("tools/call", p)
		h.result("download_from_colab", h.await(ch))
		h.mu.Lock()
		defer h.mu.Unlock()
		last := -1.0
		message := ""
		for _, n := range h.notes {
			got := decode[struct {
				Progress, Total float64
				Message         string
			}](t, n.Params)
			if got.Progress <= last {
				t.Errorf("progress went from %v to %v", last, got.Progress)
			}
			last = got.Progress
			if got.Total == large && got.Progress >= 4<<20 {
				message = got.Message
			}
		}
		if !strings.HasPrefix(message, "33% of 13 MB, ") || !strings.HasSuffix(message, " left") {
			t.Errorf("progress message %q in %d messages", message, len(h.notes))
		}
	})
}
