package op

import (
	"bytes"
	"context"
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"colabrelay/relay/client"
	"colabrelay/relay/runtimes"
	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/fakevm"
)

// serveVM is a host, a relay and a VM with files behind it.
func serveVM(t *testing.T) (h *host, vm *fakevm.VM, saveDir string) {
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
		SaveDir: saveDir, CheckpointDir: t.TempDir(), TransferDir: t.TempDir(),
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

func TestATransferThatOutlastsItsCallIsResumedByTheNext(t *testing.T) {
	content := randomBytes(large)
	for _, c := range []struct {
		tool, method, path string
		args               map[string]any
	}{
		{"download_from_colab", "GET", contract.PathContent, map[string]any{"remote_path": "/content/big", "local_filename": "x/", "overwrite": true, "runtime_name": "test"}},
		{"upload_to_colab", "PUT", contract.PathUploads, map[string]any{"local_path": "local/big"}},
	} {
		vmOnOwnClock(t, 3*time.Second, func(t *testing.T, h *host, vm *fakevm.VM, dir string) {
			vm.Put("big", content)
			write(t, filepath.Join(dir, "local", "big"), content)
			if c.tool == "upload_to_colab" {
				c.args["remote_path"] = "/content/up"
			}
			onlyFirst(vm, c.method, c.path)
			r := h.call(c.tool, c.args)
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
