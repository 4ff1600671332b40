package vm_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	bootstrap "colabrelay/colab-bootstrap"
	"colabrelay/relay/pairing"
	"colabrelay/relay/vm"
	"colabrelay/relay/vm/vmtest"
	"colabrelay/shared/tier"
	"colabrelay/shared/within"
)

// loseAnswer makes the service lose its answer to create, before or after the VM exists.
func (l *laptop) loseAnswer(exists bool) {
	l.t.Helper()
	lost := errors.New("connection reset")
	l.cloud.Hook(func(_ context.Context, c vmtest.Call) error {
		if c.Method == "create" && c.Done == exists {
			return lost
		}
		return nil
	})
	if _, err := l.process().Up(within.Context(l.t), vm.Request{Accelerators: accelerators}, l.say); !errors.Is(err, lost) || !strings.Contains(err.Error(), "may run, and use compute units") {
		l.t.Fatal(err)
	}
}

// A request whose answer was lost may still create its VM, for a while.
func TestARefusalSoonAfterALostAnswerKeepsTheRecord(t *testing.T) {
	t.Parallel()
	l := withoutProgram(t)
	l.loseAnswer(false)
	asked := l.asked()
	refused := func(m *vm.Manager) {
		t.Helper()
		for range accelerators {
			l.cloud.Refuse(vm.ErrNoneFree)
		}
		if _, err := m.Up(within.Context(t), vm.Request{Accelerators: accelerators}, l.say); !errors.Is(err, vm.ErrNoneFree) {
			t.Errorf("%v", err)
		}
	}
	refused(l.process())
	if all := l.list(); len(all) != 1 || len(*asked) != 2 {
		t.Fatalf("%v, asked for %q", all, *asked)
	}
	later := l.process()
	later.Hurry(0, time.Second)
	refused(later)
	if all := l.list(); len(all) != 0 || len(*asked) != 4 {
		t.Errorf("%v, asked for %q", all, *asked)
	}
}

func TestAFullDiskDoesNotKeepAVMRunning(t *testing.T) {
	t.Parallel()
	l := withoutProgram(t)
	_, _ = l.process().Up(within.Context(t), vm.Request{}, l.say)
	m := l.process()
	m.FillDisk()
	if _, err := m.Down(within.Context(t), "vm", false); err == nil || !strings.Contains(err.Error(), "the VM is gone") || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("%v", err)
	}
	if left := l.cloud.Running(); len(left) > 0 || len(l.list()) != 1 {
		t.Errorf("%q run, %v are listed", left, l.list())
	}
	if _, err := m.Up(within.Context(t), vm.Request{Name: "other"}, l.say); err == nil || len(l.cloud.Running()) > 0 {
		t.Errorf("a VM that could not be recorded was asked for: %v", err)
	}
}

func TestARecordSaysWhetherGoogleWasAsked(t *testing.T) {
	t.Parallel()
	l := withoutProgram(t)
	l.cloud.Hook(func(_ context.Context, c vmtest.Call) error {
		if c.Method != "create" || c.Done {
			return nil
		}
		var f struct{ VMs []vm.Record }
		text, err := os.ReadFile(l.cfg.Dir + "/vms.json")
		if err := errors.Join(err, json.Unmarshal(text, &f)); err != nil || len(f.VMs) != 1 || f.VMs[0].ID != c.ID || f.VMs[0].Asked.IsZero() {
			t.Errorf("when Google is asked, the record is %s, %v", text, err)
		}
		return nil
	})
	_, _ = l.process().Up(within.Context(t), vm.Request{}, l.say)
}

var errKilled = errors.New("the relay was killed")

// killAt starts a VM with a relay that is killed at the nth point: before or after the effect
// of a call. What was on disk then is on the laptop that it returns.
func killAt(t *testing.T, n int64) *laptop {
	t.Helper()
	l := newLaptop(t)
	l.cloud.Refuse(vm.ErrNoneFree)
	after := *l
	after.cfg.Dir, after.cfg.Pairings = t.TempDir(), pairing.Open(t.TempDir())
	var points atomic.Int64
	l.cloud.Hook(func(context.Context, vmtest.Call) error {
		switch p := points.Add(1); {
		case p < n:
			return nil
		case p == n:
			copyFolder(t, l.cfg.Dir, after.cfg.Dir)
			copyFolder(t, dirOf(l.cfg.Pairings), dirOf(after.cfg.Pairings))
		}
		return errKilled
	})
	m := vm.New(l.cfg)
	if _, err := m.Up(within.Context(t), vm.Request{Accelerators: accelerators}, l.say); err == nil {
		t.Error("the start ended before the relay was killed")
	}
	m.Close()
	l.cloud.Hook(nil)
	return &after
}

var accelerators = []string{"T4", "L4"}

func dirOf(s *pairing.Store) string { return s.Path()[:len(s.Path())-len("/runtimes.json")] }

func copyFolder(t *testing.T, from, to string) {
	t.Helper()
	if err := os.RemoveAll(to); err != nil {
		t.Error(err)
	}
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Error(err)
	}
}

func TestNothingRunsUnlistedAfterAKillAtAnyPoint(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	for _, n := range []int64{1, 14} { // of at least 17
		t.Run(fmt.Sprintf("point %d", n), func(t *testing.T) {
			l := killAt(t, n)
			listed := l.list()
			for _, id := range l.cloud.Running() {
				if v := listed[id]; !v.Ours || v.Name != vm.DefaultName {
					t.Errorf("%s runs and is listed as %+v", id, v)
				}
			}
			if n%2 == 0 {
				l.continues()
			} else {
				l.stops()
			}
		})
	}
}

// continues checks that another relay process completes the start with the VM that is there.
func (l *laptop) continues() {
	l.t.Helper()
	before := l.cloud.Running()
	got := l.up(l.process(), vm.Request{Accelerators: accelerators})
	if after := l.cloud.Running(); len(after) != 1 || after[0] != got.ID || len(before) > 0 && before[0] != got.ID {
		l.t.Errorf("before %q, after %q, returned %s", before, after, got.ID)
	}
	l.mustAnswer(vm.DefaultName)
}

// stops checks that another relay process can stop what is there.
func (l *laptop) stops() {
	l.t.Helper()
	if len(l.list()) == 0 {
		return // killed before anything was asked for
	}
	_, err := l.process().Down(l.t.Context(), vm.DefaultName, false)
	if errors.Is(err, vm.ErrNotConfirmed) { // it may be created yet, so it must stay on record
		if len(l.list()) != 1 {
			l.t.Errorf("%v, but it is not listed", err)
		}
		m := l.process()
		m.Hurry(0, time.Second)
		_, err = m.Down(l.t.Context(), vm.DefaultName, false)
	}
	if err != nil || len(l.cloud.Running()) > 0 || len(l.list()) > 0 {
		l.t.Errorf("%v; %q run, %v are listed", err, l.cloud.Running(), l.list())
	}
}

func TestAStartGoesOnWhenItsCallerStopsWaiting(t *testing.T) {
	t.Parallel()
	l := withoutProgram(t)
	entered, free := l.held("create", false)
	m := l.process()
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-entered; cancel() }()
	_, err := m.Up(ctx, vm.Request{Accelerators: accelerators}, l.say)
	if still, ok := errors.AsType[*vm.StartingError](err); !ok || still.Step != "asking Google for a VM with T4" {
		t.Fatalf("%v", err)
	}
	if all, err := l.process().List(t.Context()); err != nil || all.VMs[0].State != vm.StateStarting {
		t.Errorf("%+v, %v", all, err)
	}
	if _, err := m.Up(t.Context(), vm.Request{Accelerators: []string{"A100"}}, l.say); !errors.Is(err, vm.ErrOther) {
		t.Errorf("another request joined: %v", err)
	}
	free()
	if _, err := m.Up(within.Context(t), vm.Request{Accelerators: accelerators}, l.say); !errors.Is(err, errNoProgram) {
		t.Errorf("the result: %v", err)
	}
}

func TestAVMThatColabEndedIsReplaced(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	l := newLaptop(t)
	old := l.up(l.process(), vm.Request{Accelerators: accelerators})
	before := l.mustAnswer(vm.DefaultName)
	l.cloud.End(old.ID)
	process := func() *vm.Manager { m := l.process(); m.Hurry(0, 2*time.Minute); return m }
	if all, err := process().List(t.Context()); err != nil || all.VMs[0].State != vm.StateEnded {
		t.Errorf("%+v, %v", all, err)
	}
	got := l.up(process(), vm.Request{Accelerators: accelerators})
	if after := l.mustAnswer(vm.DefaultName); got.ID == old.ID || after.Secret.Equal(before.Secret) || after.VMID != got.ID {
		t.Errorf("%+v", got)
	}
	if len(l.list()) != 1 {
		t.Errorf("%v", l.list())
	}
	l.cloud.End(got.ID)
	if _, err := process().Down(t.Context(), got.ID, false); err != nil || len(l.list()) > 0 {
		t.Errorf("a VM that is gone was not removed: %v", err)
	}
	if _, err := l.cfg.Pairings.Get(vm.DefaultName); !errors.Is(err, pairing.ErrNotPaired) {
		t.Errorf("%v", err)
	}
}

// What runs on a VM is worth more than the connection to it.
func TestAnExecutorThatRunsAndDoesNotAnswerIsLeftAlone(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	l := newLaptop(t)
	l.up(l.process(), vm.Request{})
	l.cloud.Hook(func(_ context.Context, c vmtest.Call) error {
		if c.Method == "proxy" {
			return errors.New("HTTP 404")
		}
		return nil
	})
	m := l.process()
	m.Hurry(time.Minute, time.Second)
	if _, err := m.Up(within.Context(t), vm.Request{}, l.say); !errors.Is(err, vm.ErrUnreachable) || !strings.Contains(err.Error(), "nothing was changed") {
		t.Errorf("%v", err)
	}
	l.cloud.Hook(nil)
	l.mustAnswer(vm.DefaultName)
}

// lying is a backend whose VM answers the calls of launch.py itself.
type lying struct {
	vm.Backend
	answers map[string]string // JSON by function; none runs the real one
}

var marked = regexp.MustCompile(`functions\['call'\]\("(colab-relay [A-Z0-9]+ )", "(\w+)"`)

func (l lying) Exec(ctx context.Context, id, code string, timeout time.Duration) (string, error) {
	call := marked.FindStringSubmatch(code)
	answer, ok := l.answers[call[2]]
	if !ok {
		return l.Backend.Exec(ctx, id, code, timeout)
	}
	return "noise\n" + call[1] + answer + "\nnoise", nil
}

// A VM may run anybody's code, so what it says is outside text, and its addresses prove nothing.
func TestHostileAnswersOfAVM(t *testing.T) {
	t.Parallel()
	stranger := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"status":"ok"}`) }))
	t.Cleanup(stranger.Close)
	escape := `\u001b]0;title\u0007\u202e` + strings.Repeat("x", 100_000)
	prepared := `{"folder":"/tmp/ID","machine":"x86_64","sha256":"0","cloudflared":true}`
	ready := func(url, local string) map[string]string {
		return map[string]string{"prepare": prepared, "start": `{"pid":1}`, "poll": `{"running":true,"ready":{"url":` + quoted(url) + `,"local_url":` + quoted(local) + `}}`}
	}
	for name, answers := range map[string]map[string]string{
		"no JSON":             {"prepare": "{"},
		"another folder":      {"prepare": `{"folder":"/etc","machine":"x86_64"}`},
		"another processor":   {"prepare": `{"folder":"/tmp/ID","machine":"` + escape + `"}`},
		"an endless log":      {"prepare": prepared, "start": `{"pid":1}`, "poll": `{"running":false,"log":"` + escape + `"}`},
		"a stranger's URL":    ready(stranger.URL, "http://127.0.0.1:8000"),
		"a URL with escapes":  ready("http://127.0.0.1/\x1b]0;title\x07", "http://127.0.0.1:8000"),
		"a port of no number": ready(stranger.URL, "http://127.0.0.1:99999"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLaptop(t)
			l.cfg.NgrokToken = "t"
			l.cfg.Program = func(context.Context, string) (vm.Program, error) { return vm.Program{SHA256: "0"}, nil }
			b := &uploading{Backend: l.cloud, t: t}
			l.backend = b
			b.exec = lying{l.cloud, answers}
			m := l.process()
			m.Hurry(time.Minute, 100*time.Millisecond)
			_, err := m.Up(within.Context(t), vm.Request{Way: vm.Ngrok}, l.say)
			if err == nil {
				t.Fatal("it was believed")
			}
			if _, err := l.cfg.Pairings.Get(vm.DefaultName); err == nil {
				t.Error("it was paired")
			}
			all, err2 := m.List(t.Context())
			for _, text := range []string{strings.Join(l.said, "\n"), fmt.Sprint(all), err.Error()} {
				if strings.ContainsAny(text, "\x1b\x07\u202e") || len(text) > 50_000 {
					t.Errorf("%.200q, %v", text, err2)
				}
			}
		})
	}
}

func quoted(s string) string {
	text, _ := json.Marshal(s) // a string can always be encoded
	return string(text)
}

// uploading takes uploads without a VM's folder, and replaces ID in answers.
type uploading struct {
	vm.Backend
	exec lying
	t    *testing.T
}

func (*uploading) Upload(context.Context, string, string, []byte) error { return nil }

func (u *uploading) Exec(ctx context.Context, id, code string, timeout time.Duration) (string, error) {
	out, err := u.exec.Exec(ctx, id, code, timeout)
	return strings.ReplaceAll(out, "/ID", "/"+id), err
}

func TestTheReleasesExecutorIsKeptAndVerified(t *testing.T) {
	t.Parallel()
	content, other := "the executor", "another file"
	var served atomic.Value
	served.Store(content)
	var requests atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		fmt.Fprint(w, served.Load())
	}))
	t.Cleanup(s.Close)
	cache := filepath.Join(t.TempDir(), "cache")
	release := bootstrap.Release{Releases: s.URL, Version: "v1", SHA256AMD64: vm.DigestOf([]byte(content))}
	p, err := vm.ReleaseProgram(release, "amd64", cache)
	if err != nil || p.SHA256 != release.SHA256AMD64 {
		t.Fatal(p, err)
	}
	get := func() (string, error) { got, err := p.Content(t.Context()); return string(got), err }
	for range 2 {
		if got, err := get(); err != nil || got != content || requests.Load() != 1 {
			t.Errorf("%q, %v, %d requests", got, err, requests.Load())
		}
	}
	kept, _ := filepath.Glob(cache + "/*")
	if len(kept) != 1 {
		t.Fatal(kept)
	}
	must(t, os.WriteFile(kept[0], []byte(other), 0o600))
	if got, err := get(); err != nil || got != content || requests.Load() != 2 {
		t.Errorf("a changed copy: %q, %v, %d requests", got, err, requests.Load())
	}
	served.Store(other)
	must(t, os.Remove(kept[0]))
	if _, err := get(); err == nil || !strings.Contains(err.Error(), "SHA-256 differs") {
		t.Errorf("another file: %v", err)
	}
	if left, _ := filepath.Glob(cache + "/*"); len(left) > 0 {
		t.Errorf("another file was kept: %q", left)
	}
}
