package vm_test

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"colabrelay/relay/vm"
	"colabrelay/shared/keep"
	"colabrelay/shared/within"
)

func TestTheRecordIsPrivate(t *testing.T) {
	t.Parallel()
	l := withoutProgram(t)
	l.cfg.Dir = filepath.Join(t.TempDir(), "new")
	if err := vm.SaveLogin(l.cfg.Dir, vm.Login{Backend: "api"}); err != nil {
		t.Fatal(err)
	}
	_, _ = l.process().Up(within.Context(t), vm.Request{}, l.say)
	for name, want := range map[string]os.FileMode{"": 0o700, "vms.json": 0o600, "login.json": 0o600, "vms.lock": 0o600, l.cloud.Running()[0] + ".lock": 0o600} {
		if info, err := os.Stat(filepath.Join(l.cfg.Dir, name)); err != nil || info.Mode().Perm() != want {
			t.Errorf("%q: %v, %v", name, info, err)
		}
	}
	if _, err := l.process().Down(t.Context(), vm.DefaultName, false); err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(l.cfg.Dir + "/colab-relay-*"); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

func TestARecordOfANewerRelayIsLeftAlone(t *testing.T) {
	t.Parallel()
	l := newLaptop(t)
	text := `{"version":2,"vms":[{"unknown":true}]}`
	if err := os.WriteFile(filepath.Join(l.cfg.Dir, "vms.json"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	_, listError := l.process().List(t.Context())
	_, upError := l.process().Up(within.Context(t), vm.Request{}, l.say)
	for _, err := range []error{listError, upError} {
		if !errors.Is(err, keep.ErrNewer) {
			t.Errorf("%v", err)
		}
	}
	if content, _ := os.ReadFile(l.cfg.Dir + "/vms.json"); string(content) != text || len(l.cloud.Running()) > 0 {
		t.Errorf("the record is now %q", content)
	}
}

func TestProcessesThatStartTheSameNameShareOneVM(t *testing.T) {
	t.Parallel()
	l := withoutProgram(t)
	var all sync.WaitGroup
	for range 3 {
		m := l.process()
		all.Go(func() { _, _ = m.Up(within.Context(t), vm.Request{}, func(string) {}) })
	}
	all.Wait()
	if len(l.cloud.Running()) != 1 || len(l.list()) != 1 {
		t.Errorf("%q run, %v", l.cloud.Running(), l.list())
	}
}
