package jupyter

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"colabrelay/executor/statedir"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
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
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, err := Dial(ctx, info, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func ipcKernel(t testing.TB, s stacks.Stack, opts Options) *Client {
	t.Helper()
	info, err := NewIPC(shortDir(t))
	if err != nil {
		t.Fatal(err)
	}
	startKernel(t, s, info)
	return dial(t, info, opts)
}

// outcome is what an execution produced.
type outcome struct {
	stdout  string
	result  string
	reply   ExecuteReply
	dropped Dropped
}

// execute runs code to its reply and idle status. onMessage sees every message.
func execute(t testing.TB, c *Client, code string, onMessage func(*Message)) outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
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
		o.dropped.Messages += m.Dropped.Messages
		o.dropped.Bytes += m.Dropped.Bytes
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

func TestLargeOutputArrivesCompletely(t *testing.T) {
	tier.Long(t)
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		c := ipcKernel(t, s, Options{})
		o := execute(t, c, "for _ in range(20): print('x' * (1 << 20))", nil)
		if n := strings.Count(o.stdout, "x"); n != 20<<20 || o.dropped.Messages != 0 {
			t.Errorf("%d bytes arrived, %d messages were dropped", n, o.dropped.Messages)
		}
	})
}

func TestInputRequestIsAnswered(t *testing.T) {
	tier.Long(t)
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		c := ipcKernel(t, s, Options{})
		o := execute(t, c, "print(input('name? '), end='')", func(m *Message) {
			if m.Header.MsgType == MsgInputRequest {
				if err := c.Reply(t.Context(), m, MsgInputReply, InputReply{Value: "Ada"}); err != nil {
					t.Error(err)
				}
			}
		})
		if o.stdout != "Ada" {
			t.Errorf("stdout = %q", o.stdout)
		}
	})
}

func TestInputRequestRightAfterDialArrives(t *testing.T) {
	tier.Long(t)
	for range 5 { // a request sent before stdin is connected would be lost
		c := ipcKernel(t, stacks.Old(t), Options{})
		execute(t, c, "input()", func(m *Message) {
			if m.Header.MsgType == MsgInputRequest {
				if err := c.Reply(t.Context(), m, MsgInputReply, InputReply{Value: ""}); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func TestControlAnswersWhileCodeRuns(t *testing.T) {
	tier.Long(t)
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		c := ipcKernel(t, s, Options{})
		// ipykernel 7 ignores an interrupt between execute_input and the start of the code.
		o := execute(t, c, "print('runs', flush=True)\nwhile True: pass", func(m *Message) {
			if m.Header.MsgType != MsgStream {
				return
			}
			if _, err := c.Request(t.Context(), Control, "interrupt_request", struct{}{}); err != nil {
				t.Error(err)
			}
		})
		if o.reply.Status != "error" || o.reply.EName != "KeyboardInterrupt" {
			t.Errorf("reply = %+v", o.reply)
		}
	})
}

func TestOutputThatIsNotReceivedIsDroppedAndCounted(t *testing.T) {
	tier.Long(t)
	c := ipcKernel(t, stacks.Old(t), Options{QueueBytes: 64 << 10})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	// Request receives the reply, so nothing is received before everything was sent.
	if _, err := c.Request(ctx, Shell, MsgExecuteRequest, ExecuteRequest{
		Code: "for n in range(400):\n  print('y' * 1000, flush=True)\nimport time; time.sleep(.5)"}); err != nil {
		t.Fatal(err)
	}
	bytes, idle := int64(0), false
	var dropped Dropped
	for !idle {
		m, err := c.Receive(ctx)
		if err != nil {
			t.Fatal(err)
		}
		dropped.Messages += m.Dropped.Messages
		dropped.Bytes += m.Dropped.Bytes
		switch m.Header.MsgType {
		case MsgStream:
			bytes += m.size
		case MsgStatus:
			var s Status
			decode(t, m, &s)
			idle = s.ExecutionState == "idle"
		}
	}
	if dropped.Messages == 0 || dropped.Bytes+bytes < 400*1000 {
		t.Errorf("dropped %+v, received %d bytes", dropped, bytes)
	}
}

func TestDialEndsWithItsContext(t *testing.T) {
	info, err := NewIPC(shortDir(t)) // no kernel listens there
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := Dial(ctx, info, Options{}); err == nil {
		t.Fatal("dialled a kernel that does not exist")
	}
}

func BenchmarkExecute(b *testing.B) {
	c := ipcKernel(b, stacks.Old(b), Options{})
	for b.Loop() {
		execute(b, c, "1+1", nil)
	}
}
