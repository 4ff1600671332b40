package variables

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"colabrelay/executor/jupyter"
	"colabrelay/shared/keep"
	"colabrelay/shared/stacks"
	"colabrelay/shared/within"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// kernel is a real ipykernel that ends with the test.
type kernel struct {
	*jupyter.Client
	t *testing.T
}

func startKernel(t *testing.T, s stacks.Stack) *kernel {
	t.Helper()
	dir, err := os.MkdirTemp("", "ns-") // t.TempDir's path may be too long for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	info, err := jupyter.NewIPC(dir)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "kernel.json")
	if err := keep.WriteJSON(file, info); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(s.Python, "-m", "ipykernel_launcher", "-f", file,
		"--IPKernelApp.kernel_class=ipykernel.ipkernel.IPythonKernel", "--InteractiveShellApp.extensions=[]")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Env = append(os.Environ(), "IPYTHONDIR="+filepath.Join(dir, "ipython"))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	})
	client, err := jupyter.Dial(within.Context(t), info, jupyter.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return &kernel{Client: client, t: t}
}

// run runs a cell as a user would, and gives the repr of expression after it.
func (k *kernel) run(code, expression string) string {
	k.t.Helper()
	msg, err := k.Request(within.Context(k.t), jupyter.Shell, jupyter.MsgExecuteRequest, jupyter.ExecuteRequest{
		Code: code, StoreHistory: true, UserExpressions: map[string]string{"it": expression},
	})
	if err != nil {
		k.t.Fatal(err)
	}
	var reply jupyter.ExecuteReply
	if err := json.Unmarshal(msg.Content, &reply); err != nil {
		k.t.Fatal(err)
	}
	var value struct {
		Status, EName, EValue string
		Data                  map[string]string
	}
	if reply.Status != "ok" {
		k.t.Fatalf("the cell raised %s: %s", reply.EName, reply.EValue)
	}
	if err := json.Unmarshal(reply.UserExpressions["it"], &value); err != nil || value.Status != "ok" {
		k.t.Fatalf("%s: %v %+v", expression, err, value)
	}
	return value.Data["text/plain"]
}

func (k *kernel) preview(name string) string {
	k.t.Helper()
	got, err := Inspect(k.t.Context(), k.Client, name)
	if err != nil {
		k.t.Fatalf("inspecting %q: %v", name, err)
	}
	return got.Preview
}
