package vmtest

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"colabrelay/relay/vm"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/stacks"
)

//go:embed exec.py
var execScript string

// Cloud is a service whose VMs are folders of this computer, where code runs with the real
// Python. It is a vm.Backend, and any number of Managers may use it at once.
type Cloud struct {
	t      testing.TB
	python string

	mu       sync.Mutex
	machines map[string]machine
	refusals []error // of the next Creates
	broken   bool
	hook     func(ctx context.Context, call Call) error
	touched  []string
	environ  []string // of the VMs, besides their own
}

type machine struct {
	vm.Machine
	dir  string
	used bool // code ran there, so processes may be left
}

// Call is a call of the service, as a hook sees it.
type Call struct {
	Method string // create, list, delete, upload, exec or touch
	ID     string
	Code   string // of exec; the path of upload
	Done   bool   // the call had its effect, and its answer is on the way
}

// NewCloud returns a service without VMs. Those that run at the end of the test are ended.
func NewCloud(t testing.TB) *Cloud {
	c := &Cloud{t: t, python: stacks.Old(t).Python, machines: map[string]machine{}}
	t.Cleanup(func() {
		for id := range c.machines {
			c.End(id)
		}
	})
	return c
}

// Hook makes the service call f before and after the effect of every call. An error of f is
// the answer of the call.
func (c *Cloud) Hook(f func(context.Context, Call) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hook = f
}

// Refuse adds the answer of a following Create; nil lets one through.
func (c *Cloud) Refuse(reason error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refusals = append(c.refusals, reason)
}

// Setenv sets a variable of all VMs' environment.
func (c *Cloud) Setenv(name, value string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.environ = append(c.environ, name+"="+value)
}

// Break makes the service unreachable.
func (c *Cloud) Break() { c.SetBroken(true) }

// SetBroken makes the service unreachable, or reachable again.
func (c *Cloud) SetBroken(broken bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.broken = broken
}

// Add adds a VM that somebody else started.
func (c *Cloud) Add(m vm.Machine) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.machines[m.ID] = machine{Machine: m, dir: c.t.TempDir()}
}

// End ends a VM and all its processes.
func (c *Cloud) End(id string) {
	c.mu.Lock()
	m, found := c.machines[id]
	delete(c.machines, id)
	c.mu.Unlock()
	if found && m.used {
		KillIn(m.dir)
	}
}

// Dir returns the folder of a VM; empty if there is no such VM.
func (c *Cloud) Dir(id string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.machines[id].dir
}

// Running returns the ids of all VMs.
func (c *Cloud) Running() (ids []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id := range c.machines {
		ids = append(ids, id)
	}
	return ids
}

// Touched returns the ids that keep-alives were sent for, in order.
func (c *Cloud) Touched() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string{}, c.touched...)
}

// KillIn kills the processes whose arguments name one of these folders, and waits until they have
// ended. The folders are a test's own, so the processes are too.
func KillIn(dirs ...string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_ = harness.Poll(ctx, func() (bool, error) {
		left := 0
		lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, path := range lines {
			text, err := os.ReadFile(path)
			if err != nil || !slices.ContainsFunc(dirs, func(dir string) bool { return bytes.Contains(text, []byte(dir+"/")) }) {
				continue
			}
			pid, _ := strconv.Atoi(strings.Split(path, "/")[2])
			if p, err := os.FindProcess(pid); err == nil {
				_ = p.Kill()
			}
			left++
		}
		return left == 0, nil
	})
}

// begin calls the hook before a call's effect; end, after it.
func (c *Cloud) begin(ctx context.Context, call Call) (end func(error) error, err error) {
	c.mu.Lock()
	hook, broken := c.hook, c.broken
	c.mu.Unlock()
	if err := context.Cause(ctx); err != nil {
		return nil, fmt.Errorf("%s: %w", call.Method, err)
	}
	if broken {
		return nil, fmt.Errorf("%s: connection refused", call.Method)
	}
	if hook == nil {
		return func(err error) error { return err }, nil
	}
	if err := hook(ctx, call); err != nil {
		return nil, err
	}
	return func(err error) error {
		if err != nil {
			return err
		}
		call.Done = true
		return hook(ctx, call)
	}, nil
}

// Name implements vm.Backend.
func (c *Cloud) Name() string { return "api" }

// Specs implements vm.Backend.
func (c *Cloud) Specs(context.Context) ([]vm.Spec, error) { return nil, nil }

// Create implements vm.Backend.
func (c *Cloud) Create(ctx context.Context, id string, s vm.Spec) error {
	end, err := c.begin(ctx, Call{Method: "create", ID: id, Code: s.Accelerator})
	if err != nil {
		return err
	}
	return end(c.create(id, s))
}

func (c *Cloud) create(id string, s vm.Spec) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, found := c.machines[id]; found {
		return vm.ErrExists
	}
	if len(c.refusals) > 0 {
		reason := c.refusals[0]
		c.refusals = c.refusals[1:]
		if reason != nil {
			return fmt.Errorf("%w: the service's reason", reason)
		}
	}
	dir, err := os.MkdirTemp("", "vmtest-")
	if err != nil {
		return err
	}
	c.t.Cleanup(func() { os.RemoveAll(dir) })
	m := vm.Machine{ID: id, Spec: s, Ready: true}
	c.machines[id] = machine{Machine: m, dir: dir}
	return nil
}

// List implements vm.Backend.
func (c *Cloud) List(ctx context.Context) ([]vm.Machine, error) {
	end, err := c.begin(ctx, Call{Method: "list"})
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	var all []vm.Machine
	for _, m := range c.machines {
		all = append(all, m.Machine)
	}
	c.mu.Unlock()
	return all, end(nil)
}

// Delete implements vm.Backend.
func (c *Cloud) Delete(ctx context.Context, id string) error {
	end, err := c.begin(ctx, Call{Method: "delete", ID: id})
	if err != nil {
		return err
	}
	c.End(id)
	return end(nil)
}

// Upload implements vm.Backend.
func (c *Cloud) Upload(ctx context.Context, id, remotePath string, content []byte) error {
	end, err := c.begin(ctx, Call{Method: "upload", ID: id, Code: remotePath})
	if err != nil {
		return err
	}
	if c.Dir(id) == "" {
		return vm.ErrGone
	}
	return end(os.WriteFile(remotePath, content, 0o644))
}

// Touch implements vm.Backend.
func (c *Cloud) Touch(ctx context.Context, id string) error {
	end, err := c.begin(ctx, Call{Method: "touch", ID: id})
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, found := c.machines[id]; !found {
		return vm.ErrGone
	}
	c.touched = append(c.touched, id)
	return end(nil)
}

// Exec implements vm.Backend.
func (c *Cloud) Exec(ctx context.Context, id, code string, timeout time.Duration) (string, error) {
	end, err := c.begin(ctx, Call{Method: "exec", ID: id, Code: code})
	if err != nil {
		return "", err
	}
	c.mu.Lock()
	m, found := c.machines[id]
	if found {
		m.used = true
		c.machines[id] = m
	}
	c.mu.Unlock()
	if !found {
		return "", vm.ErrGone
	}
	out, err := c.python3(ctx, m.dir, code, timeout)
	return out, end(err)
}

func (c *Cloud) python3(ctx context.Context, dir, code string, timeout time.Duration) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, c.python, "-c", execScript)
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = dir, strings.NewReader(code), &stdout, &stderr
	c.mu.Lock()
	environ := slices.Clone(c.environ)
	c.mu.Unlock()
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "TMPDIR=" + dir, "PYTHONIOENCODING=utf-8"}, environ...)
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	out := stdout.String()
	out = out[max(0, len(out)-vm.MaxOutput):]
	if ctx.Err() != nil {
		return out, fmt.Errorf("exec: %w", ctx.Err())
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == 97 {
		text := stderr.String()
		var raised [2]string
		if err := json.Unmarshal([]byte(text[strings.LastIndex(text, "\n")+1:]), &raised); err != nil {
			return out, err
		}
		return out, &vm.ExecError{Name: raised[0], Value: raised[1][:min(len(raised[1]), 1000)]}
	}
	return out, err
}

// ProxiedCloud is a Cloud with a proxy, which is this computer itself.
type ProxiedCloud struct{ *Cloud }

// Proxy implements vm.Proxied.
func (c ProxiedCloud) Proxy(ctx context.Context, id string, port int) (string, error) {
	end, err := c.begin(ctx, Call{Method: "proxy", ID: id})
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("http://127.0.0.1:%d", port), end(nil)
}

// Transport implements vm.Proxied.
func (c ProxiedCloud) Transport(id string) http.RoundTripper { return proxy{c, id} }

// proxy calls the hook for each request.
type proxy struct {
	c  ProxiedCloud
	id string
}

func (p proxy) RoundTrip(r *http.Request) (*http.Response, error) {
	end, err := p.c.begin(r.Context(), Call{Method: "proxy", ID: p.id})
	if err != nil {
		return nil, err
	}
	res, err := http.DefaultTransport.RoundTrip(r)
	return res, end(err)
}
