package setup

import (
	"strings"
	"testing"
)

func TestAnAddressWithoutTLSOfAnotherMachineIsWorthANote(t *testing.T) {
	for _, address := range []string{"http://10.0.0.7:8000", "http://vm.example", "http://[2001:db8::1]:8000"} {
		if got := plainHTTP(address); !strings.Contains(got, "no TLS") || !strings.Contains(got, "https://") {
			t.Errorf("%s: %q", address, got)
		}
	}
	for _, address := range []string{"https://vm.example", "http://127.0.0.1:8000", "http://127.9.9.9", "http://[::1]:8000", "http://localhost:1"} {
		if got := plainHTTP(address); got != "" {
			t.Errorf("%s: %q", address, got)
		}
	}
}
