package tools

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"colabrelay/shared/contract"
)

func TestAnUploadToANewVMSaysSo(t *testing.T) {
	h, f := serveFake(t, 5*time.Second)
	for _, path := range []string{contract.PathUploads, contract.PathUploads + "/u/commit"} {
		f.answer("POST", path, contract.Upload{UploadID: "u", Status: contract.UploadCommitted, Path: "/content/a"})
	}
	local := filepath.Join(t.TempDir(), "a")
	if err := os.WriteFile(local, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	check(t, h)
	for _, instance := range []string{"instance-1", "instance-2"} {
		f.replace(instance)
		r := h.call("upload_to_colab", map[string]any{"local_path": local})
		if warned := strings.Contains(r.outcome(t).Warning, "new one, and the upload went there"); r.IsError || warned != (instance == "instance-2") {
			t.Errorf("on %s: %s", instance, r.Structured)
		}
	}
}

// An execution is gone with its VM: no message about code that was not run again is needed.
func TestInputAndInterruptOnANewVMSayThatTheRunIsGone(t *testing.T) {
	for name, args := range map[string]map[string]any{
		"interrupt_execution": {"execution_id": "e1"},
		"provide_input":       {"execution_id": "e1", "text": "x"},
	} {
		h, f := serveFake(t, 5*time.Second)
		check(t, h)
		f.replace("instance-2")
		e := h.call(name, args).outcome(t).Error
		if e == nil || e.Code != string(contract.CodeNewInstance) || !strings.Contains(e.Message, "the run ended with the old VM") || !strings.Contains(e.Hint, "list_executions") {
			t.Errorf("%s: %+v", name, e)
		}
	}
}

// A restart or a cleanup that an agent wanted on one VM is not done on the next one.
func TestRestartAndCleanupAreNotDoneOnANewVM(t *testing.T) {
	for name, path := range map[string]string{"restart_kernel": contract.PathKernelRestart, "cleanup_colab": contract.PathCleanup} {
		t.Run(name, func(t *testing.T) {
			h, f := serveFake(t, 5*time.Second)
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
