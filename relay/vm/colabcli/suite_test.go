package colabcli

import (
	"testing"

	"colabrelay/relay/vm"
	"colabrelay/relay/vm/colabcli/colabclitest"
	"colabrelay/relay/vm/vmtest"
)

func open(t *testing.T) (*Backend, *colabclitest.Program) {
	t.Helper()
	program := colabclitest.Install(t)
	return New(Config{Program: program.Path, Dir: t.TempDir(), Environ: program.Environ()}), program
}

func TestTheBackendPassesTheSuite(t *testing.T) {
	status := map[error]int{vm.ErrNoneFree: 503, vm.ErrNotEligible: 400, vm.ErrTooMany: 412}
	vmtest.Suite(t, func(t *testing.T) vmtest.Fixture {
		b, program := open(t)
		return vmtest.Fixture{
			Backend: b,
			Refuse:  func(reason error) { program.Fault("refuse", status[reason]) },
			Reasons: []error{vm.ErrNoneFree, vm.ErrNotEligible, vm.ErrTooMany},
			End:     program.End,
			Break:   func() { program.Fault("unreachable", true) },
		}
	})
}
