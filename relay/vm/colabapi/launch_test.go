package colabapi_test

import (
	"bytes"
	"context"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"colabrelay/relay/client"
	"colabrelay/relay/pairing"
	"colabrelay/relay/vm"
	"colabrelay/relay/vm/colabapi"
	"colabrelay/relay/vm/colabapi/colabapitest"
	"colabrelay/shared/tier"
	"colabrelay/shared/within"
)

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
	if err := vm.SaveLogin(l.dir, vm.Login{Backend: "api", Accepted: time.Now()}); err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
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
