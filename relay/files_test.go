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

	"colabrelay/relay/cli"
	"colabrelay/relay/client"
	"colabrelay/relay/config/configtest"
	"colabrelay/relay/hint"
	"colabrelay/relay/plain"
	"colabrelay/relay/terminal"
	"colabrelay/relay/transfer"
	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/fakevm"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/tier"
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
	if code, out, errs := relay(t, getenv, "", "get", "r"); code != 0 || !strings.Contains(errs, `note: “/content/r/\x1b[2Jx” has a different name here: "_[2Jx"`) {
		t.Fatalf("%d: %s%s", code, out, errs)
	}
	write(t, filepath.Join(dir, "r", "a.txt"), []byte("3"))
	for _, unchanged := range []string{"1 unchanged", "2 unchanged"} {
		code, out, errs := relay(t, getenv, "", "get", "r")
		if code != 0 || !strings.Contains(out, unchanged) || !strings.Contains(errs, `note: “/content/r/a.txt” has a different name here: "a (1).txt"`) {
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
	tier.Long(t)
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
		code := run(ctx, append([]string{cli.CommandName}, c.args...), getenv, terminal.Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
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

// One source prints an object, several print a list, which has what was done before an error.
func TestTheJSONOfSeveralUploads(t *testing.T) {
	vm, getenv, dir := startVM(t)
	for _, name := range []string{"a", "b", "c"} {
		write(t, filepath.Join(dir, name), []byte(name))
	}
	vm.Put("x/b", []byte("theirs"))
	code, out, errs := relay(t, getenv, "", "put", "--json", "--to", "x", "a", "b", "c")
	if code != cli.ExitFailure || !strings.HasPrefix(out, "[\n  {") || strings.Count(out, `"remote_path"`) != 1 || !strings.Contains(errs, "not transferred either: 1 further argument\n") {
		t.Errorf("%d: %s%s", code, out, errs)
	}
	if code, out, _ := relay(t, getenv, "", "put", "--json", "a"); code != 0 || !strings.HasPrefix(out, "{") {
		t.Errorf("%d: %s", code, out)
	}
	if _, err := os.Stat(filepath.Join(dir, "data", "colab-relay", "transfers", "uploads.json")); err != nil {
		t.Error(err)
	}
}

// What ls prints is what get and put take, and means that file alone.
func TestEachNameThatLsPrintsMeansItsFileAlone(t *testing.T) {
	vm, getenv, dir := startVM(t)
	names := map[string]bool{}
	for _, name := range []string{
		"ab", "a\u200bb", `a\xe2\x80\x8bb`, "“ab”", "“a\u200bb”", `"ab"`, "a b", "a\u00a0b", "a b ", " a b", `a\x20b`, "a\nb", "a\x1b[2Jb", `a\x1b[2Jb`, "\xff", `\xff`, "a\u202eb", "a\u200db", "ü", "a\ue000b", "-a",
	} {
		vm.Put("data/"+contract.EscapeName(name), []byte(name))
		names[name] = true
	}
	code, out, errs := relay(t, getenv, "", "ls", "-a", "data")
	lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	at := strings.Index(lines[0], "NAME")
	if code != 0 || len(lines) != len(names)+1 || plain.Text(out) != out {
		t.Fatalf("%d: %q, %s", code, out, errs)
	}
	for i, line := range lines[1:] {
		shown := line[at:]
		if code, _, errs := relay(t, getenv, "", "get", "data/"+shown, "got", "--overwrite"); code != 0 {
			t.Errorf("%q: %s", shown, errs)
		}
		got, err := os.ReadFile(filepath.Join(dir, "got"))
		if err != nil || !names[string(got)] {
			t.Errorf("%q leads to %q, %v", shown, got, err)
		}
		names[string(got)] = false
		write(t, filepath.Join(dir, "sent"), []byte{byte(i)})
		code, out, errs := relay(t, getenv, "", "put", "sent", "/content/data/"+shown, "--overwrite")
		if now, _ := vm.File("data/" + contract.EscapeName(string(got))); code != 0 || string(now) != string([]byte{byte(i)}) || !strings.HasPrefix(out, "/content/data/"+shown+": ") {
			t.Errorf("put to %q: %q on the VM, %s%s", shown, now, out, errs)
		}
		code, out, errs = relay(t, getenv, "", "ls", "data/"+shown)
		if code != 0 || !strings.HasSuffix(out, " "+shown+"\n") {
			t.Errorf("ls of %q: %s%s", shown, out, errs)
		}
	}
}

func TestHelpOfGetNamesAllThatIsLeftOut(t *testing.T) {
	_, getenv, _ := startVM(t)
	if code, out, errs := relay(t, getenv, "", "get", "--help"); code != 0 || strings.Count(out, "files named HEAD") != 2 {
		t.Errorf("%d: %s%s", code, out, errs)
	}
}

func TestGetLeavesOutWhatProgramsObey(t *testing.T) {
	vm, getenv, dir := startVM(t)
	for _, name := range []string{"p/.git/config", "p/.envrc", "p/src/CLAUDE.md", "p/src/a.py"} {
		vm.Put(name, []byte("1"))
	}
	note := "left out, because programs on this computer may obey files of such names: “/content/p/.envrc”, “/content/p/.git”, “/content/p/src/CLAUDE.md”; --dotfiles downloads them too"
	for _, flags := range [][]string{nil, {"--json"}} {
		code, out, errs := relay(t, getenv, "", append([]string{"get", "p"}, flags...)...)
		if code != 0 || !strings.Contains(errs, "note: "+note+"\n") || len(flags) > 0 && !strings.Contains(out, note) {
			t.Errorf("%d: %s%s", code, out, errs)
		}
	}
	if entries, err := os.ReadDir(filepath.Join(dir, "p")); err != nil || len(entries) != 1 {
		t.Errorf("there are %v, %v", entries, err)
	}
	if code, out, errs := relay(t, getenv, "", "get", "p", "--dotfiles"); code != 0 || strings.Contains(errs, "left out") || !strings.Contains(out, "4 files") {
		t.Errorf("%d: %s%s", code, out, errs)
	}
	if _, err := os.Stat(filepath.Join(dir, "p", ".git", "config")); err != nil {
		t.Error(err)
	}
}

func TestNamesOfFilesCannotWriteToTheTerminal(t *testing.T) {
	vm := fakevm.Start(t)
	vm.Put("d/a\x1b[2J\nb", nil)
	configtest.Home(t)
	env := configtest.Environ("COLAB_URL", vm.URL, "COLAB_SECRET", vm.Secret.Reveal())
	for _, flag := range []string{"-a", "--json"} {
		code, out, errs := relay(t, env, "", "ls", "d", flag)
		if code != 0 || bytes.ContainsRune([]byte(out), '\x1b') || strings.Contains(out, "\nb") {
			t.Errorf("exit code %d, %q, %s", code, out, errs)
		}
	}
}
