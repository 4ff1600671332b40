package colabapi_test

import (
	"context"
	"os"
	"testing"

	"go.uber.org/goleak"

	"colabrelay/relay/vm"
	"colabrelay/relay/vm/colabapi"
	"colabrelay/relay/vm/colabapi/colabapitest"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/within"
)

// executor is the path of the real executor.
var executor string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "colabapi-test-")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		if executor, err = harness.BuildExecutor(context.Background(), dir); err != nil {
			panic(err)
		}
		release := colabapitest.KeepServer()
		code := m.Run()
		release()
		if err := goleak.Find(); code == 0 && err != nil {
			println(err.Error())
			return 1
		}
		return code
	}())
}

// started returns an imitation of Google with a VM.
func started(t *testing.T) (*colabapitest.Google, *colabapi.Backend, string) {
	t.Helper()
	g := colabapitest.Start(t)
	b, id := g.Backend(t), vm.NewID()
	if err := b.Create(within.Context(t), id, vm.Spec{}); err != nil {
		t.Fatal(err)
	}
	return g, b, id
}
