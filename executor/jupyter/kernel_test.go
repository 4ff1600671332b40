package jupyter

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"colabrelay/shared/keep"
	"colabrelay/shared/stacks"
	"colabrelay/shared/within"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// startKernel starts a real ipykernel on these sockets; it ends with the test.
func startKernel(t testing.TB, s stacks.Stack, info ConnectionInfo) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kernel.json")
	if err := keep.WriteJSON(file, info); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(s.Python, "-m", "ipykernel_launcher", "-f", file,
		"--IPKernelApp.kernel_class=ipykernel.ipkernel.IPythonKernel",
		"--InteractiveShellApp.extensions=[]", "--HistoryManager.enabled=False")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Env = append(os.Environ(), "IPYTHONDIR="+t.TempDir())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	})
}

// shortDir is a folder whose path leaves room for sockets; t.TempDir's may not.
func shortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "jup-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// execute runs code to its reply and idle status, and returns its result. onMessage sees every message.
func execute(t testing.TB, c *Client, code string, onMessage func(*Message)) (result string) {
	t.Helper()
	ctx := within.Context(t)
	id, err := c.Send(ctx, Shell, MsgExecuteRequest, ExecuteRequest{Code: code, StoreHistory: true, AllowStdin: true})
	if err != nil {
		t.Fatal(err)
	}
	replied, idle := false, false
	for !replied || !idle {
		m, err := c.Receive(ctx)
		if err != nil {
			t.Fatalf("%q: %v", code, err)
		}
		if m.ParentHeader.MsgID != id {
			continue
		}
		onMessage(m)
		switch m.Header.MsgType {
		case MsgExecuteReply:
			replied = true
		case MsgStatus:
			var s Status
			decode(t, m, &s)
			idle = s.ExecutionState == "idle"
		case MsgExecuteResult:
			var d DisplayData
			decode(t, m, &d)
			result = string(d.Data["text/plain"])
		}
	}
	return result
}

func decode(t testing.TB, m *Message, v any) {
	t.Helper()
	if err := json.Unmarshal(m.Content, v); err != nil {
		t.Fatalf("%s: %v", m.Header.MsgType, err)
	}
}
