package op

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"colabrelay/shared/contract"
)

// A restart or a cleanup that an agent wanted on one VM is not done on the next one.
func TestRestartAndCleanupAreNotDoneOnANewVM(t *testing.T) {
	for name, path := range map[string]string{"restart_kernel": contract.PathKernelRestart, "cleanup_colab": contract.PathCleanup} {
		t.Run(name, func(t *testing.T) {
			h, f := serveFake(t)
			f.on("POST", path, func(_ *http.Request, body []byte) (int, any) {
				var ref contract.KernelRef
				if err := json.Unmarshal(body, &ref); err != nil || ref.KernelID != "kernel-1" {
					t.Errorf("asked with %q", body)
				}
				return http.StatusOK, contract.Kernel{Status: contract.KernelIdle, KernelID: "kernel-1"}
			})
			check(t, h)
			f.replace("instance-2")
			e := h.call(name, map[string]any{}).outcome(t).Error
			if e == nil || e.Code != string(contract.CodeNewInstance) || !strings.Contains(e.Message, "not changed") || !strings.Contains(e.Hint, "Call again") {
				t.Errorf("%+v", e)
			}
			if n := f.count("POST", path); n != 0 {
				t.Errorf("it was asked for %d times", n)
			}
			if r := h.call(name, map[string]any{}); r.IsError || f.count("POST", path) != 1 {
				t.Errorf("called again: %s", r.Structured)
			}
		})
	}
}
