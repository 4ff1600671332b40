package colabapi_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"colabrelay/relay/client"
	"colabrelay/relay/pairing"
	"colabrelay/relay/vm"
	"colabrelay/relay/vm/colabapi"
	"colabrelay/relay/vm/colabapi/colabapitest"
	"colabrelay/relay/vm/vmtest"
	"colabrelay/shared/tier"
	"colabrelay/shared/within"
)

// executor is the path of the real executor.
var executor string

func TestMain(m *testing.M) { vmtest.Main(m, &executor, colabapitest.KeepServer()) }

// started returns an imitation of Google with a VM.
func started(t *testing.T) (*colabapitest.Google, *colabapi.Backend, string) {
	t.Helper()
	g := colabapitest.Start(t)
	b, id := g.Backend(t), vm.NewID()
	must(t, b.Create(within.Context(t), id, vm.Spec{Accelerator: vm.CPU}))
	return g, b, id
}

// A login page of a hotel's network, or a proxy's error, proves nothing about VMs.
func TestAnswersThatAreNotTheAPIs(t *testing.T) {
	for name, answer := range map[string]func(http.ResponseWriter){
		"404 page":     func(w http.ResponseWriter) { http.Error(w, "<html>login</html>", 404) },
		"endless":      func(w http.ResponseWriter) { flood(w) },
		"no such call": func(w http.ResponseWriter) { colabapitest.WriteError(w, 404, "", "Method not found.") },
		"aborted": func(w http.ResponseWriter) {
			w.WriteHeader(409)
			fmt.Fprint(w, `{"error":{"code":409,"status":"ABORTED"}}`)
		},
		"another's VM": func(w http.ResponseWriter) { fmt.Fprint(w, `{"name":"runtimes/another"}`) },
	} {
		t.Run(name, func(t *testing.T) {
			g, b, id := started(t)
			g.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
				if r.Method != http.MethodDelete && r.URL.Path != "/v1beta/runtimespecs" {
					answer(w)
					return true
				}
				return false
			})
			if err := b.Touch(within.Context(t), id); err == nil || errors.Is(err, vm.ErrGone) {
				t.Errorf("touch: %v", err)
			}
			if err := b.Delete(within.Context(t), id); err == nil || errors.Is(err, vm.ErrGone) {
				t.Errorf("delete: %v", err)
			}
			if all, err := b.List(within.Context(t)); err == nil && name != "another's VM" {
				t.Errorf("list: %+v", all)
			}
			if err := b.Create(within.Context(t), vm.NewID(), vm.Spec{Accelerator: vm.CPU}); err == nil || errors.Is(err, vm.ErrExists) || errors.Is(err, vm.ErrGone) {
				t.Errorf("create: %v", err)
			}
		})
	}
}

// A call that the API no longer has, and a VM that a lookup misses, are no proof of its end.
func TestAVMThatIsListedIsNotGone(t *testing.T) {
	g, b, id := started(t)
	g.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet || r.URL.Path != "/v1beta/runtimes/"+id {
			return false
		}
		colabapitest.WriteError(w, 404, "", "Method not found.")
		return true
	})
	if err := b.Touch(within.Context(t), id); err == nil || errors.Is(err, vm.ErrGone) || !strings.Contains(err.Error(), "is still listed") {
		t.Errorf("got %v", err)
	}
}

func flood(w http.ResponseWriter) {
	piece := []byte(strings.Repeat("x", 1<<20))
	for {
		if _, err := w.Write(piece); err != nil {
			return
		}
	}
}

func TestAllPagesOfAListAreRead(t *testing.T) {
	g := colabapitest.Start(t)
	g.PageSize = 3
	for i := range 10 {
		g.Add(fmt.Sprintf("another-%d", i))
	}
	if all, err := g.Backend(t).List(within.Context(t)); err != nil || len(all) != 10 || all[9].ID != "another-9" {
		t.Errorf("%+v, %v", all, err)
	}
}

func TestTheBackendPassesTheSuiteOfAllBackends(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	vmtest.Suite(t, func(t *testing.T) vmtest.Fixture {
		g := colabapitest.Start(t)
		return vmtest.Fixture{
			Backend: g.Backend(t), Refuse: g.Refuse, End: g.End, Break: g.Break,
			Reasons: []error{vm.ErrNoneFree, vm.ErrNotEligible, vm.ErrQuota, vm.ErrDenied, vm.ErrTooMany},
		}
	})
}

func TestAnEndlessAnswerIsNotReadToItsEnd(t *testing.T) {
	g, b, id := started(t)
	g.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if strings.HasPrefix(r.URL.Path, "/api/kernels") {
			flood(w)
			return true
		}
		return false
	})
	if err := b.Touch(within.Context(t), id); err == nil {
		t.Error("a flood is an answer")
	}
}

// Code on the VM can make its Jupyter server answer so. net/http then forgets the request's time.
func TestAnAnswerThatSwitchesProtocolIsNotWaitedFor(t *testing.T) {
	tier.Long(t)
	g, b, id := started(t)
	g.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		defer conn.Close()
		_, _ = conn.Write([]byte("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"))
		_, _ = conn.Read(make([]byte, 1)) // until the backend gives up
		return true
	})
	ended := make(chan error, 1)
	go func() { ended <- b.Touch(within.Context(t), id) }()
	if err := within.Receive(t, "the end of the call", ended); err == nil {
		t.Error("the touch succeeded")
	}
}

func TestAMessageOfAKernelBeyondTheBoundIsNotRead(t *testing.T) {
	t.Parallel()
	g, b, id := started(t)
	g.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		switch {
		case r.Method == http.MethodPost && r.URL.Path == "/api/kernels":
			fmt.Fprint(w, `{"id":"0-1"}`)
		case strings.HasSuffix(r.URL.Path, "/channels"):
			c, err := websocket.Accept(w, r, nil)
			if err != nil {
				t.Error(err)
				return true
			}
			defer c.CloseNow()
			_ = c.Write(r.Context(), websocket.MessageText, bytes.Repeat([]byte("z"), 17<<20))
			_, _, _ = c.Read(r.Context()) // until the relay ends the connection
		case strings.HasPrefix(r.URL.Path, "/api/kernels/"):
			fmt.Fprint(w, `{"execution_state":"idle"}`)
		default:
			return false
		}
		return true
	})
	if out, err := b.Exec(within.Context(t), id, "pass", time.Minute); err == nil || out != "" {
		t.Errorf("%d bytes, %v", len(out), err)
	}
}

// laptop is a computer whose relay starts VMs through the API.
type laptop struct {
	dir     string
	pairs   *pairing.Store
	manager *vm.Manager
	log     *lockedBuffer
	steps   []string
}

type lockedBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

func newLaptop(t *testing.T, g *colabapitest.Google) *laptop {
	t.Helper()
	l := &laptop{dir: g.Login(t), pairs: pairing.Open(t.TempDir()), log: &lockedBuffer{}}
	log := slog.New(slog.NewTextHandler(l.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	b := colabapi.New(colabapi.Config{Dir: l.dir, Transport: g, Log: log})
	must(t, vm.SaveLogin(l.dir, vm.Login{Backend: "api", Accepted: time.Now()}))
	l.manager = vm.New(vm.Config{
		Dir: l.dir, Pairings: l.pairs, Log: log,
		Open:    func(string) (vm.Backend, error) { return b, nil },
		Program: func(_ context.Context, arch string) (vm.Program, error) { return vm.FileProgram(executor, arch) },
	})
	t.Cleanup(b.Close)
	t.Cleanup(l.manager.Close)
	return l
}

// mustHideSecrets checks that nothing but the login file has a secret of Google's, and that
// logs have none of the executor's either.
func (l *laptop) mustHideSecrets(t *testing.T, g *colabapitest.Google, others ...string) {
	t.Helper()
	secrets := append(g.Secrets(), others...)
	check := func(where, text string) {
		for _, s := range secrets {
			if strings.Contains(text, s) {
				t.Errorf("%s contains the secret %.6s…", where, s)
			}
		}
	}
	check("the log", l.log.String())
	check("the steps", strings.Join(l.steps, "\n"))
	err := filepath.WalkDir(l.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == loginFile {
			return err
		}
		text, err := os.ReadFile(path)
		check(path, string(text))
		return err
	})
	if err != nil || l.log.Len() == 0 {
		t.Errorf("%d bytes of log, %v", l.log.Len(), err)
	}
}

func TestARealExecutorIsReachedThroughTheProxy(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	g := colabapitest.Start(t)
	l := newLaptop(t, g)
	got, err := l.manager.Up(within.Context(t), vm.Request{Way: vm.Proxy}, func(step string) { l.steps = append(l.steps, step) })
	if err != nil || !slices.Equal(g.Running(), []string{got.ID}) {
		t.Fatalf("up: %v (%q); runs: %q\n%s", err, l.steps, g.Running(), l.log.String())
	}
	r, err := l.pairs.Get(got.Name)
	if err != nil || r.VMID != got.ID || !strings.Contains(r.URL, "-"+got.ID+".prod.colab.dev") {
		t.Fatalf("paired %+v, %v", r, err)
	}
	c, err := client.New(client.Config{BaseURL: r.URL, Secret: r.Secret, Transport: l.manager.Transport(r)})
	must(t, err)
	defer c.Close()
	if _, err := c.Kernel(within.Context(t)); err != nil {
		t.Fatal(err)
	}
	g.ExpireToken(got.ID)
	g.ExpireAccess()
	if _, err := c.Kernel(within.Context(t)); err != nil {
		t.Errorf("after the tokens' end: %v", err)
	}
	l.mustHideSecrets(t, g, r.Secret.Reveal())
	if _, err := l.manager.Down(within.Context(t), got.Name, false); err != nil || len(g.Running()) != 0 {
		t.Errorf("down: %v; runs: %q", err, g.Running())
	}
}

// must ends the test on an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
