package vm_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"colabrelay/relay/vm"
	"colabrelay/shared/tier"
	"colabrelay/shared/within"
)

// records returns n records.
func records(n int) (all []vm.Record) {
	for i := range n {
		all = append(all, vm.Record{ID: vm.NewID(), Name: fmt.Sprintf("vm-%d", i), Backend: "api", Accelerators: []string{"T4", "L4"}, Accelerator: "T4", Step: vm.Paired, Asked: time.Now().UTC(), KeyIDs: []string{"0123456789abcdef"}, Failure: "x"})
	}
	return all
}

// write makes the record of the laptop.
func (l *laptop) write(text []byte) {
	l.t.Helper()
	if err := os.WriteFile(filepath.Join(l.cfg.Dir, "vms.json"), text, 0o600); err != nil {
		l.t.Fatal(err)
	}
}

func TestTheRecordIsPrivate(t *testing.T) {
	tier.Long(t)
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

func TestADamagedRecordIsKeptAndSaid(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	for name, text := range map[string]string{
		"no JSON":            "{",
		"no version":         "{}",
		"a bad id":           `{"version":1,"vms":[{"id":"../../x","name":"a","backend":"api","accelerators":["T4"],"step":"asked"}]}`,
		"a bad name":         `{"version":1,"vms":[{"id":"colab-relay-0123456789abcdef","name":"\u001b[2J","backend":"api","accelerators":["T4"],"step":"asked"}]}`,
		"a bad step":         `{"version":1,"vms":[{"id":"colab-relay-0123456789abcdef","name":"a","backend":"api","accelerators":["T4"],"step":"x"}]}`,
		"over a MiB":         `{"version":1,"vms":[` + strings.Repeat(" ", 1<<20) + `]}`,
		"empty accelerators": `{"version":1,"vms":[{"id":"colab-relay-0123456789abcdef","name":"a","backend":"api","step":"asked"}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			l := newLaptop(t)
			id := vm.NewID()
			l.cloud.Add(vm.Machine{ID: id, Ready: true})
			l.write([]byte(text))
			got, err := l.process().List(t.Context())
			if err != nil || len(got.Notes) != 1 || !strings.Contains(got.Notes[0], "damaged") {
				t.Errorf("%+v, %v", got, err)
			}
			if len(got.VMs) != 1 || got.VMs[0].State != vm.StateLost {
				t.Errorf("a VM that a relay started: %+v", got.VMs)
			}
			kept, _ := filepath.Glob(l.cfg.Dir + "/vms.json.damaged-*")
			if len(kept) != 1 {
				t.Fatalf("kept as %q", kept)
			}
			if content, err := os.ReadFile(kept[0]); err != nil || string(content) != text {
				t.Errorf("the kept file was changed: %v", err)
			}
		})
	}
}

func TestARecordOfANewerRelayIsLeftAlone(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	l := newLaptop(t)
	text := `{"version":2,"vms":[{"unknown":true}]}`
	l.write([]byte(text))
	_, listError := l.process().List(t.Context())
	_, upError := l.process().Up(within.Context(t), vm.Request{}, l.say)
	for _, err := range []error{listError, upError} {
		if err == nil || !strings.Contains(err.Error(), "use the newer relay") {
			t.Errorf("%v", err)
		}
	}
	if content, _ := os.ReadFile(l.cfg.Dir + "/vms.json"); string(content) != text || len(l.cloud.Running()) > 0 {
		t.Errorf("the record is now %q", content)
	}
}

func TestRecordsAreBounded(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	l := withoutProgram(t)
	text, err := vm.EncodeRecords(records(vm.MaxRecords))
	if err != nil {
		t.Fatal(err)
	}
	l.write(text)
	if _, err := l.process().Up(within.Context(t), vm.Request{}, l.say); !errors.Is(err, vm.ErrTooManyKept) || len(l.cloud.Running()) > 0 {
		t.Errorf("%v", err)
	}
	if n := len(l.list()); n != vm.MaxRecords {
		t.Errorf("%d listed", n)
	}
	if _, err := l.process().Down(within.Context(t), "vm-0", false); err != nil {
		t.Error(err)
	}
	if _, err := l.process().Up(within.Context(t), vm.Request{}, l.say); !errors.Is(err, errNoProgram) {
		t.Errorf("%v", err)
	}
	if _, err := vm.EncodeRecords(records(20_000)); err == nil {
		t.Error("a record over the bound was encoded")
	}
}

// Many processes change the record at once, and lose nothing.
func TestManyProcessesStartVMsAtOnce(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	l := withoutProgram(t)
	var all sync.WaitGroup
	for i := range 20 {
		m := l.process()
		all.Go(func() {
			_, _ = m.Up(within.Context(t), vm.Request{Name: fmt.Sprintf("vm-%d", i)}, func(string) {})
		})
	}
	all.Wait()
	listed := l.list()
	if len(listed) != 20 || len(l.cloud.Running()) != 20 {
		t.Errorf("%d run, %d are listed", len(l.cloud.Running()), len(listed))
	}
	for _, id := range l.cloud.Running() {
		if !listed[id].Ours {
			t.Errorf("%s is not listed as ours", id)
		}
	}
}

func TestProcessesThatStartTheSameNameShareOneVM(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	l := withoutProgram(t)
	var all sync.WaitGroup
	for range 10 {
		m := l.process()
		all.Go(func() { _, _ = m.Up(within.Context(t), vm.Request{}, func(string) {}) })
	}
	all.Wait()
	if len(l.cloud.Running()) != 1 || len(l.list()) != 1 {
		t.Errorf("%q run, %v", l.cloud.Running(), l.list())
	}
}

func FuzzDecodeRecords(f *testing.F) {
	text, _ := vm.EncodeRecords(records(2))
	f.Add(string(text))
	f.Add(`{"version":1,"vms":null}`)
	f.Add(`{"version":9}`)
	f.Fuzz(func(t *testing.T, text string) {
		all, err := vm.DecodeRecords([]byte(text))
		if err != nil {
			return
		}
		again, err := vm.EncodeRecords(all)
		if err != nil && len(text) < 1<<18 {
			t.Fatal(err)
		}
		if back, err2 := vm.DecodeRecords(again); err == nil && (err2 != nil || !slices.EqualFunc(all, back, func(a, b vm.Record) bool { return a.ID == b.ID && a.Step == b.Step })) {
			t.Errorf("%+v became %+v, %v", all, back, err2)
		}
	})
}
