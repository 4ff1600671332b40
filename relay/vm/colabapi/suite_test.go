package colabapi_test

import (
	"testing"

	"colabrelay/relay/vm"
	"colabrelay/relay/vm/colabapi/colabapitest"
	"colabrelay/relay/vm/vmtest"
	"colabrelay/shared/tier"
)

func TestTheBackendPassesTheSuiteOfAllBackends(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	vmtest.Suite(t, func(t *testing.T) vmtest.Fixture {
		g := colabapitest.Start(t)
		return vmtest.Fixture{
			Backend: g.Backend(t), Refuse: g.Refuse, End: g.End, Break: g.Break,
			Reasons: []error{vm.ErrNoneFree, vm.ErrNotEligible, vm.ErrQuota, vm.ErrDenied, vm.ErrTooMany},
		}
	})
}
