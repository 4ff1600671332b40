package vm_test

import (
	"sync"
	"testing"

	"colabrelay/relay/vm"
	"colabrelay/shared/within"
)

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
