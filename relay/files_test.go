package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"colabrelay/relay/config/configtest"
	"colabrelay/relay/plain"
	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/fakevm"
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
