package colabcli

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"colabrelay/relay/vm"
	"colabrelay/relay/vm/colabcli/colabclitest"
	"colabrelay/shared/tier"
	"colabrelay/shared/within"
)

// awaitAsked waits until `colab new` has asked for a VM.
func awaitAsked(t *testing.T, program *colabclitest.Program) {
	t.Helper()
	within.Until(t, "a VM is asked for", program.Asked)
}

// A caller that goes away does not end `colab new`: the VM would have no name.
func TestColabNewGoesOnAfterItsCaller(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	b, program := open(t)
	program.Fault("hold_new", true)
	id := vm.NewID()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		awaitAsked(t, program)
		cancel()
	}()
	if err := b.Create(ctx, id, vm.Spec{}); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if err := New(b.cfg).Delete(within.Context(t), id); err == nil || !strings.Contains(err.Error(), "still starting it") {
		t.Errorf("deleted by another relay while it is created: %v", err)
	}
	program.Fault("hold_new", nil)
	other := New(b.cfg) // such as the next relay, after this one was killed
	if err := other.Create(within.Context(t), id, vm.Spec{}); !errors.Is(err, vm.ErrExists) {
		t.Errorf("the next Create: %v", err)
	}
	if len(program.Endpoints()) != 1 {
		t.Errorf("%d VMs run", len(program.Endpoints()))
	}
	if err := other.Delete(within.Context(t), id); err != nil {
		t.Error(err)
	}
}

func TestAVMWhoseNameWasNeverStoredIsListedByItsID(t *testing.T) {
	t.Parallel()
	b, program := open(t)
	program.Start("-s", "mine")
	program.Fault("kill_new", true)
	id := vm.NewID()
	err := b.Create(within.Context(t), id, vm.Spec{Accelerator: "T4"})
	if err == nil || !strings.Contains(err.Error(), "Manage sessions") {
		t.Fatalf("a killed `colab new`: %v", err)
	}
	all, err := b.List(within.Context(t))
	if err != nil || len(all) != 2 || !slices.Contains(all, vm.Machine{ID: id, Spec: vm.Spec{Accelerator: "T4"}}) {
		t.Errorf("%+v, %v", all, err)
	}
	if err := b.Create(within.Context(t), id, vm.Spec{Accelerator: "T4"}); err == nil || errors.Is(err, vm.ErrExists) || len(program.Endpoints()) != 2 {
		t.Errorf("created again: %v", err)
	}
	if err := b.Delete(within.Context(t), id); err == nil || !strings.Contains(err.Error(), "Manage sessions") {
		t.Errorf("delete: %v", err)
	}
	for _, endpoint := range program.Endpoints() {
		if endpoint != program.Names()["mine"] {
			program.EndEndpoint(endpoint) // the person stops it on Colab's page
		}
	}
	if err := b.Delete(within.Context(t), id); err != nil {
		t.Errorf("delete of a VM that is gone: %v", err)
	}
	if all, err := b.List(within.Context(t)); err != nil || len(all) != 1 || all[0].ID != "mine" {
		t.Errorf("%+v, %v", all, err)
	}
}

// The program forgets the name of a VM whose proxy answers 404 once.
func TestAVMThatTheProgramForgotIsNotGone(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	b, program := open(t)
	id := vm.NewID()
	if err := b.Create(within.Context(t), id, vm.Spec{}); err != nil {
		t.Fatal(err)
	}
	program.Fault("lost", true)
	uploadError := b.Upload(within.Context(t), id, "/tmp/x", nil)
	_, execError := b.Exec(within.Context(t), id, "print(1)", time.Minute)
	for call, err := range map[string]error{"upload": uploadError, "exec": execError, "delete": b.Delete(within.Context(t), id)} {
		if err == nil || errors.Is(err, vm.ErrGone) {
			t.Errorf("%s: %v", call, err)
		}
	}
	if all, err := New(b.cfg).List(within.Context(t)); err != nil || !slices.Equal(all, []vm.Machine{{ID: id}}) {
		t.Errorf("another relay lists %+v, %v", all, err)
	}
	program.EndEndpoint(program.Endpoints()[0])
	if _, err := b.Exec(within.Context(t), id, "print(1)", time.Minute); !errors.Is(err, vm.ErrGone) {
		t.Errorf("after its end: %v", err)
	}
	if known, err := b.records.all(); err != nil || len(known) != 0 {
		t.Errorf("remembered: %v, %v", known, err)
	}
}
