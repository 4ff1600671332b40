package jupyter

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"colabrelay/executor/statedir"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
	"colabrelay/shared/within"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// startKernel starts a real ipykernel on these sockets; it ends with the test.
func startKernel(t testing.TB, s stacks.Stack, info ConnectionInfo) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kernel.json")
	if err := statedir.WriteJSON(file, info); err != nil {
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

func dial(t testing.TB, info ConnectionInfo, opts Options) *Client {
	t.Helper()
	ctx := within.Context(t)
	c, err := Dial(ctx, info, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// outcome is what an execution produced.
type outcome struct {
	stdout string
	result string
	reply  ExecuteReply
}

// execute runs code to its reply and idle status. onMessage sees every message.
func execute(t testing.TB, c *Client, code string, onMessage func(*Message)) outcome {
	t.Helper()
	ctx := within.Context(t)
	id, err := c.Send(ctx, Shell, MsgExecuteRequest, ExecuteRequest{Code: code, StoreHistory: true, AllowStdin: true})
	if err != nil {
		t.Fatal(err)
	}
	var o outcome
	var out strings.Builder
	replied, idle := false, false
	for !replied || !idle {
		m, err := c.Receive(ctx)
		if err != nil {
			t.Fatalf("%q: %v", code, err)
		}
		if m.ParentHeader.MsgID != id {
			continue
		}
		if onMessage != nil {
			onMessage(m)
		}
		switch m.Header.MsgType {
		case MsgExecuteReply:
			replied = true
			decode(t, m, &o.reply)
		case MsgStatus:
			var s Status
			decode(t, m, &s)
			idle = s.ExecutionState == "idle"
		case MsgStream:
			var s Stream
			if err := m.Decode(&s); err != nil {
				t.Fatal(err)
			}
			for _, text := range []json.RawMessage{s.Text, m.TornEnd()} {
				if text == nil {
					continue
				}
				if err := Text(text, 16<<10, func(piece []byte) { out.Write(piece) }); err != nil {
					t.Fatal(err)
				}
			}
		case MsgExecuteResult:
			var d DisplayData
			decode(t, m, &d)
			o.result = string(d.Data["text/plain"])
		}
	}
	o.stdout = out.String()
	return o
}

func decode(t testing.TB, m *Message, v any) {
	t.Helper()
	if err := json.Unmarshal(m.Content, v); err != nil {
		t.Fatalf("%s: %v", m.Header.MsgType, err)
	}
}

func TestEveryTransportAndKeyRunsCode(t *testing.T) {
	tier.Long(t)
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		for _, transport := range []string{"ipc", "tcp"} {
			for _, key := range []string{"with key", "with empty key"} {
				t.Run(transport+" "+key, func(t *testing.T) {
					info, err := NewTCP()
					if transport == "ipc" {
						info, err = NewIPC(shortDir(t))
					}
					if err != nil {
						t.Fatal(err)
					}
					if key == "with empty key" {
						info.Key = ""
					}
					startKernel(t, s, info)
					c := dial(t, info, Options{})
					o := execute(t, c, "print('grüße ☃ \U0001F600', end='')\n6 * 7", nil)
					if o.stdout != "grüße ☃ \U0001F600" || o.result != `"42"` || o.reply.Status != "ok" {
						t.Errorf("outcome = %+v", o)
					}
				})
			}
		}
	})
}
