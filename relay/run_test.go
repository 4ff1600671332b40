package main

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"colabrelay/relay/pairing"
	"colabrelay/relay/tools"
	"colabrelay/shared/auth"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/stacks"
)

// realVM is a real executor with a real kernel, and a person who has it as the
// runtime.
func realVM(t *testing.T) (e *harness.Executor, getenv func(string) string) {
	t.Helper()
	binaries, err := harness.Build(t.Context(), t.TempDir()) // before home takes Go's cache away
	if err != nil {
		t.Fatal(err)
	}
	home(t)
	secret := auth.GenerateSecret().Reveal()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	e = startExecutor(t, ctx, binaries.Executor, secret)
	return e, environ("COLAB_URL", e.Ready.LocalURL, "COLAB_SECRET", secret, "test relay", binaries.Relay, "test executor", binaries.Executor)
}

// startExecutor starts an executor, which stops with the test.
func startExecutor(t *testing.T, ctx context.Context, binary, secret string) *harness.Executor {
	t.Helper()
	e, err := harness.StartExecutor(ctx, harness.ExecutorConfig{Binary: binary, Python: stacks.Old(t).Python, Dir: t.TempDir(), Secret: secret})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := e.Stop(ctx); err != nil {
			t.Errorf("stopping the executor: %v", err)
		}
	})
	return e
}

// A picture of one pixel, in 16 lines of base64's smallest PNG.
const showPicture = `
import base64
from IPython.display import display, Image
display(Image(data=base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")))
print("shown")
`

func TestRunOnARealVM(t *testing.T) {
	vm, getenv := realVM(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "ask.py")
	write(t, file, []byte("name = input('who? ')\nprint('hello', name)\n"))
	t.Run("outcomes", func(t *testing.T) {
		for _, c := range []struct {
			name, stdin string
			args        []string
			code        int
			out, errs   string // patterns of the whole
		}{
			{"code", "", []string{"-c", "print('a')\n6*7"}, 0, `a\n42\n`, ``},
			{"stdin", "import sys\nprint('b', file=sys.stderr)", nil, 0, ``, `b\n`},
			{"nothing", " \n", nil, 1, ``, `relay: nothing to run: the code is empty\n`},
			{"no end of line", "", []string{"-c", "print('x', end='')"}, 0, `x`, `\n`},
			{"an exception", "", []string{"-c", "print('c'); 1/0"}, 1, `c\n`, `(?s)-+\nZeroDivisionError.*division by zero\n`},
			{"input", "bob\n", []string{file}, 0, `hello bob\n`, `who\? `},
			{"input, no end of line", "eve", []string{file}, 0, `hello eve\n`, `who\? `},
			{"no input", "", []string{file}, 1, ``, `(?s)who\? .*interrupting.*stdin has none to give\n`},
			{"input, with the code on stdin", "input()", []string{"-"}, 1, ``, `(?s).*interrupting.*stdin has none to give\n`},
			{"a deadline", "", []string{"--timeout", "1s", "-c", "import time\ntime.sleep(60)"}, 1, ``, `(?s).*KeyboardInterrupt.*timed_out: its deadline.*\n`},
			{"the kernel's end", "", []string{"-c", "import os\nos._exit(3)"}, 1, ``, `(?s)relay: the run ended as kernel_died: .*\n`},
			{"a new kernel", "", []string{"-c", "print(1)"}, 0, `1\n`, `relay: the kernel is a new one: variables, .*\n`},
			{"the same kernel", "", []string{"-c", "print(2)"}, 0, `2\n`, ``},
			{"sys.exit(0)", "", []string{"-c", "import sys; sys.exit(0)"}, 0, ``, `(?s).*SystemExit.*`},
			{"sys.exit()", "", []string{"-c", "import sys; sys.exit()"}, 0, ``, `(?s).*SystemExit.*`},
			{"sys.exit(7)", "", []string{"-c", "import sys; sys.exit(7)"}, 7, ``, `(?s).*SystemExit: 7.*`},
			{"sys.exit(256)", "", []string{"-c", "import sys; sys.exit(256)"}, 1, ``, `(?s).*SystemExit: 256.*`},
			{"sys.exit of a text", "", []string{"-c", "import sys; sys.exit('bad')"}, 1, ``, `(?s).*SystemExit: bad.*`},
			{"output past one answer", "", []string{"-c", "for i in range(30000): print('line', i, 'x' * 80)"}, 0, `(?s)line 0 x+\n.*line 29999 x+\n`, ``},
			{"a blob", "", []string{"-c", "'y' * 200_000"}, 0, `'y{1000}y*'\n`, ``},
			{"no file", "", []string{"none.py"}, 1, ``, `relay: open none.py: .*\n`},
			{"both", "", []string{"-c", "1", "x.py"}, 1, ``, `relay: give either .*\n`},
			{"no such runtime", "", []string{"--runtime", "x", "-c", "1"}, 1, ``, `relay: runtime "x" is not paired.*\n`},
		} {
			code, out, errs := relay(t, getenv, c.stdin, append([]string{"run"}, c.args...)...)
			if code != c.code || !whole(c.out, out) || !whole(c.errs, errs) {
				t.Errorf("%s: %d %.300q\n%.800q", c.name, code, out, errs)
			}
		}
	})
	t.Run("a picture is kept", func(t *testing.T) {
		code, out, errs := relay(t, getenv, "", "run", "-c", showPicture)
		path, _ := strings.CutPrefix(strings.TrimSpace(errs), "relay: picture in ")
		if b, err := os.ReadFile(path); code != 0 || out != "shown\n" || err != nil || !bytes.HasPrefix(b, []byte("\x89PNG")) {
			t.Errorf("%d %q %q: %v", code, out, errs, err)
		}
	})
	t.Run("Ctrl-C interrupts it there", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var out, errs output
		ended := make(chan int)
		go func() {
			ended <- run(ctx, []string{"run", "-c", "import time\nkept = 1\nprint('here', flush=True)\ntry: time.sleep(300)\nfinally: print('swept')"}, getenv, streams{strings.NewReader(""), &out, &errs})
		}()
		await(t, func() bool { return strings.Contains(out.String(), "here") })
		cancel()
		if code := <-ended; code != 1 || out.String() != "here\nswept\n" || !strings.Contains(errs.String(), "the run ended as interrupted") {
			t.Errorf("%d %q %q", code, out.String(), errs.String())
		}
		if code, out, errs := relay(t, getenv, "", "run", "-c", "print(kept)"); code != 0 || out != "1\n" {
			t.Errorf("variables are gone: %d %q %q", code, out, errs)
		}
	})
	t.Run("it goes on through cuts", func(t *testing.T) {
		var asked, cut atomic.Int64
		everyThird := func() bool { return asked.Add(1)%3 == 0 && cut.Add(1) > 0 }
		through := environ("COLAB_URL", front(t, func() string { return vm.Ready.LocalURL }, everyThird), "COLAB_SECRET", getenv("COLAB_SECRET"))
		code, out, errs := relay(t, through, "", "run", "-c", "import time\nfor i in range(8):\n  print(i, flush=True)\n  time.sleep(0.3)")
		if code != 0 || out != "0\n1\n2\n3\n4\n5\n6\n7\n" || cut.Load() < 2 {
			t.Errorf("%d cuts: %d %q %q", cut.Load(), code, out, errs)
		}
	})
	t.Run("agents are told all the same", func(t *testing.T) {
		lives, key, store := livesOf(t, getenv)
		if seen := store.LastSeen(key); seen.KernelID == "" || seen.InstanceID == "" {
			t.Errorf("the doctor knows nothing of it: %+v", seen)
		}
		lives.Save(pairing.EnvName, pairing.LastSeen{InstanceID: "vm-0", KernelID: "old"})
		relay(t, getenv, "", "run", "-c", "1")
		if seen := lives.Load(pairing.EnvName); seen.KernelID != "old" {
			t.Errorf("an agent will not be told of a new kernel: %+v", seen)
		}
		if store.LastSeen(key).KernelID == "old" {
			t.Error("the doctor will claim stale losses")
		}
	})
	t.Run("a VM that is gone is said to run on", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var dark atomic.Bool
		set := &settings{getenv: environ("COLAB_URL", front(t, func() string { return vm.Ready.LocalURL }, dark.Load), "COLAB_SECRET", getenv("COLAB_SECRET"))}
		var out, errs output
		r := &remoteRun{std: streams{strings.NewReader(""), &out, &errs}, timeout: time.Minute, lastWait: 300 * time.Millisecond}
		ended := make(chan error)
		go func() {
			ended <- r.run(ctx, set, "", "import time\nfor i in range(600):\n  print('here', flush=True)\n  time.sleep(0.1)")
		}()
		await(t, func() bool { return strings.Contains(out.String(), "here") })
		dark.Store(true)
		await(t, func() bool { return strings.Contains(errs.String(), "waiting for the VM") })
		cancel()
		if err := <-ended; err == nil || !strings.Contains(err.Error(), "the run may still go on there, as ") || !strings.Contains(err.Error(), "could not be interrupted") {
			t.Errorf("%v %q", err, errs.String())
		}
	})
}

// livesOf are the lives that agents saw, the key of the newest, and its store.
func livesOf(t *testing.T, getenv func(string) string) (tools.LastSeen, string, *pairing.Store) {
	t.Helper()
	store, err := openPairings()
	if err != nil {
		t.Fatal(err)
	}
	runtimes := newRuntimes(getenv, store, slog.New(slog.DiscardHandler))
	t.Cleanup(runtimes.close)
	if _, err := runtimes.resolve(""); err != nil {
		t.Fatal(err)
	}
	key, _ := runtimes.keys(pairing.EnvName, byAgents)
	return runtimes.lives(byAgents), key, store
}

// whole reports whether pattern fits all of text.
func whole(pattern, text string) bool {
	return regexp.MustCompile(`^(?:` + pattern + `)$`).MatchString(text)
}

// await polls until f is true.
func await(t *testing.T, f func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := harness.Poll(ctx, func() (bool, error) { return f(), nil }); err != nil {
		t.Fatal(err)
	}
}

// front passes requests on to what target gives, and breaks the connection in place of
// an answer where cut says so.
func front(t *testing.T, target func() string, cut func() bool) string {
	t.Helper()
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		to, err := url.Parse(target())
		if err != nil {
			t.Error(err)
			return
		}
		r.SetURL(to)
		r.Out.Host = r.In.Host // it is signed
	}}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if cut() {
			panic(http.ErrAbortHandler)
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s.URL
}
