// Package vmtest holds the tests that every backend of relay/vm passes, and a backend whose
// VMs are folders of this computer. It is for tests only. Start reading at Suite.
package vmtest

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"colabrelay/relay/vm"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/within"
)

// Fixture is a backend before a service that imitates Google's.
type Fixture struct {
	Backend vm.Backend
	// Refuse makes the service refuse the next Create for a reason: ErrNoneFree,
	// ErrNotEligible, ErrQuota, ErrDenied or ErrTooMany. Reasons lists those that the
	// service can give.
	Refuse  func(reason error)
	Reasons []error
	// End ends a VM as Google does at any time.
	End func(id string)
	// Break makes the service unreachable until the end of the test.
	Break func()
}

// limit bounds a call that starts a kernel on a busy computer.
const limit = time.Minute

// Suite runs the tests on fixtures that open makes: a new one, without VMs, each time.
func Suite(t *testing.T, open func(t *testing.T) Fixture) {
	for name, test := range map[string]func(*testing.T, Fixture){
		"a VM is listed from its creation until it is deleted": life,
		"uploaded bytes arrive unchanged":                      uploads,
		"code prints, fails and times out":                     executions,
		"long output keeps its end":                            longOutput,
		"a VM that Google ended is gone":                       ended,
		"each refusal has its error":                           refusals,
		"no answer is no proof":                                unreachable,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t))
		})
	}
}

func create(t *testing.T, b vm.Backend) string {
	t.Helper()
	id := vm.NewID()
	if err := b.Create(within.Context(t), id, vm.Spec{Accelerator: vm.CPU}); err != nil {
		t.Fatalf("create: %v", err)
	}
	return id
}

func run(t *testing.T, b vm.Backend, id, code string) string {
	t.Helper()
	out, err := b.Exec(within.Context(t), id, code, limit)
	if err != nil {
		t.Fatalf("%q: %v", code, err)
	}
	return strings.TrimSpace(out)
}

// listed returns the VM with that id, as List has it.
func listed(t *testing.T, b vm.Backend, id string) (vm.Machine, bool) {
	t.Helper()
	all, err := b.List(within.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		if m.ID == id {
			return m, true
		}
	}
	return vm.Machine{}, false
}

func life(t *testing.T, f Fixture) {
	first, second := create(t, f.Backend), create(t, f.Backend)
	if m, found := listed(t, f.Backend, first); !found || !m.Ready || m.Spec.Accelerator != vm.CPU {
		t.Errorf("after its creation: %+v, %t", m, found)
	}
	if err := f.Backend.Touch(within.Context(t), first); err != nil {
		t.Errorf("touch: %v", err)
	}
	if err := f.Backend.Create(within.Context(t), first, vm.Spec{Accelerator: vm.CPU}); !errors.Is(err, vm.ErrExists) {
		t.Errorf("created twice: %v", err)
	}
	for range 2 { // to delete what is gone is no error
		if err := f.Backend.Delete(within.Context(t), first); err != nil {
			t.Fatal(err)
		}
		if _, found := listed(t, f.Backend, first); found {
			t.Error("a deleted VM is listed")
		}
	}
	if _, found := listed(t, f.Backend, second); !found {
		t.Error("another VM was deleted")
	}
}

func uploads(t *testing.T, f Fixture) {
	id := create(t, f.Backend)
	folder := run(t, f.Backend, id, "import tempfile; print(tempfile.mkdtemp())")
	big := make([]byte, 2<<20+17) // several chunks, the last one not full
	_, _ = rand.NewChaCha8([32]byte{}).Read(big)
	upload := func(content []byte) {
		if err := f.Backend.Upload(within.Context(t), id, folder+"/a b'\"ü", content); err != nil {
			t.Fatal(err)
		}
	}
	upload(append(big, "earlier, which is longer"...))
	upload(big)
	code := fmt.Sprintf("import hashlib; print(hashlib.sha256(open(%q, 'rb').read()).hexdigest())", folder+"/a b'\"ü")
	if got, want := run(t, f.Backend, id, code), fmt.Sprintf("%x", sha256.Sum256(big)); got != want {
		t.Errorf("it arrived as %s, want %s", got, want)
	}
	if err := f.Backend.Upload(within.Context(t), id, folder+"/none/file", nil); err == nil {
		t.Error("uploaded into a folder that does not exist")
	}
}

func executions(t *testing.T, f Fixture) {
	id := create(t, f.Backend)
	if got := run(t, f.Backend, id, "for i in range(3):\n    print(i, '\u00fc')\n'not printed'"); !strings.HasPrefix(got, "0 ü\n1 ü\n2 ü") {
		t.Errorf("printed %q", got)
	}
	_, err := f.Backend.Exec(within.Context(t), id, "print('before')\nraise ValueError('the reason')", limit)
	if raised, ok := errors.AsType[*vm.ExecError](err); !ok || raised.Name != "ValueError" || raised.Value != "the reason" {
		t.Errorf("an exception: %v", err)
	}
	if _, err := f.Backend.Exec(within.Context(t), id, "import time; time.sleep(600)", time.Second); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a timeout: %v", err)
	}
}

func longOutput(t *testing.T, f Fixture) {
	id := create(t, f.Backend)
	out, err := f.Backend.Exec(within.Context(t), id, "for i in range(60):\n    print('x' * 40_000)\nprint('the end')", limit)
	if err != nil || len(out) > vm.MaxOutput || !strings.HasSuffix(strings.TrimSpace(out), "the end") {
		t.Errorf("%d bytes that end with %q, %v", len(out), out[max(0, len(out)-20):], err)
	}
}

func ended(t *testing.T, f Fixture) {
	id := create(t, f.Backend)
	f.End(id)
	if _, found := listed(t, f.Backend, id); found {
		t.Error("an ended VM is listed")
	}
	if _, err := f.Backend.Exec(within.Context(t), id, "print(1)", limit); !errors.Is(err, vm.ErrGone) {
		t.Errorf("exec: %v", err)
	}
	if err := f.Backend.Upload(within.Context(t), id, "/tmp/x", nil); !errors.Is(err, vm.ErrGone) {
		t.Errorf("upload: %v", err)
	}
	if err := f.Backend.Touch(within.Context(t), id); !errors.Is(err, vm.ErrGone) {
		t.Errorf("touch: %v", err)
	}
	if err := f.Backend.Delete(within.Context(t), id); err != nil {
		t.Errorf("delete: %v", err)
	}
}

func refusals(t *testing.T, f Fixture) {
	for _, reason := range f.Reasons {
		f.Refuse(reason)
		id := vm.NewID()
		if err := f.Backend.Create(within.Context(t), id, vm.Spec{Accelerator: "T4"}); !errors.Is(err, reason) {
			t.Errorf("%v: %v", reason, err)
		}
		if _, found := listed(t, f.Backend, id); found {
			t.Errorf("%v: the refused VM is listed", reason)
		}
	}
	create(t, f.Backend)
}

func unreachable(t *testing.T, f Fixture) {
	id := create(t, f.Backend)
	f.Break()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // a backend may try again until then
	defer cancel()
	all, listError := f.Backend.List(ctx)
	if listError == nil {
		t.Errorf("a list without a service: %+v", all)
	}
	createError := f.Backend.Create(ctx, vm.NewID(), vm.Spec{Accelerator: vm.CPU})
	_, execError := f.Backend.Exec(ctx, id, "print(1)", limit)
	for call, err := range map[string]error{"list": listError, "create": createError, "exec": execError, "upload": f.Backend.Upload(ctx, id, "/tmp/x", nil), "delete": f.Backend.Delete(ctx, id), "touch": f.Backend.Touch(ctx, id)} {
		if err == nil || errors.Is(err, vm.ErrGone) || errors.Is(err, vm.ErrExists) {
			t.Errorf("%s without a service: %v", call, err)
		}
	}
}

// Main runs a package's tests with the real executor, whose path *executor becomes. release is called
// before goroutines are counted.
func Main(m *testing.M, executor *string, release func()) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "vm-test-")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		if *executor, err = harness.BuildExecutor(context.Background(), dir); err != nil {
			panic(err)
		}
		code := m.Run()
		release()
		if err := goleak.Find(); code == 0 && err != nil {
			println(err.Error())
			return 1
		}
		return code
	}())
}
