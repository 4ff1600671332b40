package api

import (
	"net/http"
	"sync"
	"testing"

	"colabrelay/shared/contract"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
)

func (s *stand) kernel() contract.Kernel {
	s.t.Helper()
	return into[contract.Kernel](s, s.call("GET", contract.PathKernel, nil))
}

func (s *stand) restart(kernelID string) contract.Kernel {
	s.t.Helper()
	return into[contract.Kernel](s, s.call("POST", contract.PathKernelRestart, contract.KernelRef{KernelID: kernelID}))
}

func TestARestartHappensOnceForAKernel(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	s := newLiveStand(t, stacks.Old(t))
	before := s.kernel()
	var mu sync.Mutex
	var wg sync.WaitGroup
	became := map[string]int{}
	for range 8 {
		wg.Go(func() {
			k := s.restart(before.KernelID)
			mu.Lock()
			defer mu.Unlock()
			became[k.KernelID]++
		})
	}
	wg.Wait()
	after := s.kernel()
	if after.KernelID == before.KernelID || after.KernelsStarted != before.KernelsStarted+1 || became[after.KernelID] != 8 {
		t.Errorf("after 8 concurrent restarts of one kernel, %d kernels were started, before %d; the answers name %v", after.KernelsStarted, before.KernelsStarted, became)
	}
	s.submit("mine = 1", 20)
	for _, late := range []string{before.KernelID, "", "unknown"} {
		if k := s.restart(late); k.KernelID != after.KernelID || k.KernelsStarted != after.KernelsStarted {
			t.Errorf("a late restart of %q gives %+v", late, k)
		}
	}
	if e := s.submit("mine", 20); e.Status != contract.StatusSucceeded {
		t.Errorf("the variables are gone: %+v", e.Error)
	}
}

func TestACleanupOfAnotherKernelDeletesNothing(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	s := newLiveStand(t, stacks.Old(t))
	s.submit("mine = 1", 20)
	for _, late := range []string{"", "unknown"} {
		s.call("POST", contract.PathCleanup, contract.KernelRef{KernelID: late}).want(t, http.StatusConflict, contract.CodeConflict)
	}
	for _, path := range []string{contract.PathCleanup, contract.PathKernelRestart} {
		s.call("POST", path, nil).want(t, http.StatusBadRequest, contract.CodeBadRequest)
	}
	if e := s.submit("mine", 20); e.Status != contract.StatusSucceeded {
		t.Errorf("the variables are gone: %+v", e.Error)
	}
}
