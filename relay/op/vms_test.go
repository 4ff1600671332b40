package op

import (
	"context"
	"errors"
	"strings"
	"testing"

	"colabrelay/relay/pairing"
	"colabrelay/relay/runtimes"
	"colabrelay/relay/toolsets"
	"colabrelay/relay/vm"
	"colabrelay/relay/vm/vmtest"
)

// vmDesk is a host whose relay may start VMs. Their start ends before the executor's.
type vmDesk struct {
	*host
	cloud   *vmtest.Cloud
	manager *vm.Manager
}

var noProgram = vm.Program{SHA256: "0", Content: func(context.Context) ([]byte, error) { return nil, errors.New("no program") }}

func newVMDesk(t *testing.T, login bool) *vmDesk {
	t.Helper()
	d := &vmDesk{cloud: vmtest.NewCloud(t)}
	dir := t.TempDir()
	d.manager = vm.New(vm.Config{
		Dir: dir, Pairings: pairing.Open(t.TempDir()), NgrokToken: "t",
		Open:    func(string) (vm.Backend, error) { return d.cloud, nil },
		Program: func(context.Context, string) (vm.Program, error) { return noProgram, nil },
	})
	t.Cleanup(d.manager.Close)
	if login {
		if err := vm.SaveLogin(dir, vm.Login{Backend: "api"}); err != nil {
			t.Fatal(err)
		}
	}
	d.host = startHost(t, Config{Toolsets: []toolsets.Toolset{toolsets.Provision}, VMs: d.manager,
		Resolve: unpaired})
	return d
}

func unpaired(string) (runtimes.Runtime, error) {
	return runtimes.Runtime{}, errors.New("nothing is paired")
}

// named makes arguments of pairs of names and values.
func named(pairs ...any) object {
	all := args(pairs...)
	delete(all, "notebook_path")
	return all
}

// problem checks that a call is refused with this code, and returns what it says.
func (d *vmDesk) problem(code, tool string, pairs ...any) string {
	d.t.Helper()
	p := d.call(tool, named(pairs...)).outcome(d.t).Error
	if p == nil || p.Code != code || p.Hint == "" {
		d.t.Fatalf("%s: %+v, want %s", tool, p, code)
	}
	return p.Message + " " + p.Hint
}

func TestVMToolsSayHowToEnableThem(t *testing.T) {
	d := newVMDesk(t, false)
	for tool, pairs := range map[string][]any{"start_colab_vm": nil, "list_colab_vms": nil, "stop_colab_vm": {"id", "vm"}} {
		if text := d.problem("not_enabled", tool, pairs...); !strings.Contains(text, "`colab-relay vm login`") {
			t.Errorf("%s: %s", tool, text)
		}
	}
	if len(d.cloud.Running()) > 0 {
		t.Error("a VM was started")
	}
	without := startHost(t, Config{Toolsets: []toolsets.Toolset{toolsets.Provision}, Resolve: unpaired})
	if p := without.call("list_colab_vms", named()).outcome(t).Error; p == nil || p.Code != codeNotConfigured {
		t.Errorf("%+v", p)
	}
}
