package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"colabrelay/relay/cli"
	"colabrelay/relay/config/configtest"
	"colabrelay/relay/plain"
	"colabrelay/relay/terminal"
	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/fakevm"
	"colabrelay/shared/within"
)

// relay runs the program and returns its exit code and output.
func relay(t *testing.T, getenv func(string) string, stdin string, args ...string) (code int, out, errs string) {
	t.Helper()
	var o, e bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), within.Limit)
	defer cancel()
	code = run(ctx, append([]string{cli.CommandName}, args...), getenv, terminal.Streams{In: strings.NewReader(stdin), Out: &o, Err: &e})
	return code, o.String(), e.String()
}

func TestServeStartsWithWrongSettingsAndEndsWithStdin(t *testing.T) {
	configtest.Home(t)
	for _, args := range [][]string{{}, {"serve"}} {
		inR, inW := io.Pipe()
		outR, outW := io.Pipe()
		var errs bytes.Buffer
		ended := make(chan int, 1)
		go func() {
			ended <- run(t.Context(), append([]string{cli.CommandName}, args...), configtest.Environ("RELAY_HOLD", "soon"), terminal.Streams{In: inR, Out: outW, Err: &errs})
			outW.Close()
		}()
		lines := bufio.NewScanner(outR)
		ask := func(line string) string {
			io.WriteString(inW, line+"\n")
			if !lines.Scan() {
				t.Fatal("stdout ended")
			}
			return lines.Text()
		}
		ask(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`)
		got := ask(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"check_colab_connection","arguments":{}}}`)
		if !strings.Contains(got, "not_configured") || !strings.Contains(got, "RELAY_HOLD") || !strings.Contains(got, `"isError":true`) {
			t.Errorf("%s", got)
		}
		inW.Close()
		if code := <-ended; code != 0 {
			t.Errorf("exit code %d: %s", code, errs.String())
		}
	}
}

// Each failing call is logged, and a host may start the relay with a pipe that it never reads.
func TestAHostThatNeverReadsStderrGetsEveryAnswer(t *testing.T) {
	configtest.Home(t)
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	errsR, errsW := io.Pipe()
	defer errsR.Close() // ends the write that waits
	ended := make(chan int, 1)
	go func() {
		ended <- run(t.Context(), []string{cli.CommandName}, configtest.Environ("RELAY_HOLD", "soon"), terminal.Streams{In: inR, Out: outW, Err: errsW})
		outW.Close()
	}()
	answers := make(chan string)
	go func() {
		for lines := bufio.NewScanner(outR); lines.Scan(); {
			answers <- lines.Text()
		}
	}()
	for id := range 480 {
		fmt.Fprintf(inW, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"check_colab_connection","arguments":{}}}`+"\n", id)
		within.Receive(t, "an answer", answers)
	}
	inW.Close()
	if code := within.Receive(t, "the relay's end", ended); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// full is a disk without room.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

func TestACommandWhoseOutputIsNotWrittenFails(t *testing.T) {
	configtest.Home(t)
	const ping = `{"jsonrpc":"2.0","id":1,"method":"ping"}` + "\n"
	for _, args := range [][]string{{"serve"}, {"help"}, {"guide"}, {"version"}, {"run", "--help"}} {
		var errs bytes.Buffer
		code := run(t.Context(), append([]string{cli.CommandName}, args...), configtest.Environ(), terminal.Streams{In: strings.NewReader(ping), Out: full{}, Err: &errs})
		if code != cli.ExitFailure || !strings.Contains(errs.String(), syscall.ENOSPC.Error()) {
			t.Errorf("%q exits with %d: %q", args, code, errs.String())
		}
	}
}

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
