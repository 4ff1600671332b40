package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"colabrelay/executor/jupyter"
	"colabrelay/relay/client"
	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/harness"
)

// onePlusOne is what the quick runs execute.
const onePlusOne = "1+1"

// quickRuns measures the ways to run 1+1. All but the bridge use the same kernel.
func quickRuns(ctx context.Context, b *bench) ([]row, error) {
	p, err := b.pair(ctx)
	if err != nil {
		return nil, err
	}
	kernel, err := b.kernelOf(ctx, p.executor)
	if err != nil {
		return nil, err
	}
	relay, err := b.relayConfig(p.executor.Ready.LocalURL)
	if err != nil {
		return nil, err
	}
	servers := []harness.HostConfig{relay}
	if b.bridge != "" {
		url, err := b.flask(ctx)
		if err != nil {
			return nil, err
		}
		servers = append(servers, b.bridgeConfig(url))
	}
	plain, err := b.plainExchange(ctx)
	if err != nil {
		return nil, err
	}
	ways := []way{bareRun(kernel), plain, post(p.client)}
	for _, server := range servers {
		h, err := b.lineHost(server)
		if err != nil {
			return nil, err
		}
		ways = append(ways, quickLine(h))
	}
	s, err := timing{n: 1000, warmUps: 100}.inTurn(ctx, ways...)
	if err != nil {
		return nil, err
	}
	bare, exchange, posts, tools := s[0], s[1], s[2], s[3]
	rows := []row{
		latency("the bare kernel: our Jupyter client on the same kernel", bare),
		floor(exchange, bare),
		ratioAtMost(latency("POST /v1/executions through relay/client", posts).comparedTo("bare kernel", posts, bare), 1.12),
		ratioAtMost(latency("run_code_quick over stdio", tools).comparedTo("bare kernel", tools, bare), 1.25),
	}
	if b.bridge == "" {
		return rows, nil
	}
	bridge := s[4]
	r := row{what: "run_code_quick against the old-style bridge"}.comparedTo("old-style bridge", tools, bridge)
	return append(rows, latency("the old-style bridge's tool over stdio", bridge).comparedTo("bare kernel", bridge, bare), ratioAtMost(r, 1)), nil
}

func bareRun(kernel *jupyter.Client) way {
	return way{name: "bare kernel", do: func(ctx context.Context) error { return executeBare(ctx, kernel, onePlusOne) }}
}

func post(c *client.Client) way {
	return way{name: "POST", do: func(ctx context.Context) error {
		_, err := c.Submit(ctx, contract.Submit{Code: onePlusOne, WaitSeconds: 10})
		return err
	}}
}

func toolCall(h *harness.Host) way {
	return way{name: "tool call", do: func(ctx context.Context) error {
		_, err := call(ctx, h, "run_code_quick", map[string]any{"code": onePlusOne})
		return err
	}}
}

// floor is the ratio that a call through HTTP would have if it took no time of its own.
func floor(exchange, bare samples) row {
	r := latency("a plain net/http POST of the same size to another program, without a kernel", exchange)
	r.ratio, r.against = float64(bare.median()+exchange.median())/float64(bare.median()), "bare kernel, with it"
	return r
}

// kernelOf connects to the kernel of an executor directly. No run can be faster than through
// this connection.
func (b *bench) kernelOf(ctx context.Context, e *harness.Executor) (*jupyter.Client, error) {
	var record struct{ PID int }
	if err := readJSON(filepath.Join(e.Config.Dir, ".colab-relay", "kernel.json"), &record); err != nil {
		return nil, err
	}
	cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", record.PID))
	if err != nil {
		return nil, err
	}
	args := strings.Split(string(cmdline), "\x00")
	var info jupyter.ConnectionInfo
	if err := readJSON(args[slices.Index(args, "-f")+1], &info); err != nil {
		return nil, err
	}
	return b.dial(ctx, info)
}

func readJSON(path string, into any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}

// dial connects to a kernel. It waits for one that is starting.
func (b *bench) dial(ctx context.Context, info jupyter.ConnectionInfo) (*jupyter.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	c, err := jupyter.Dial(ctx, info, jupyter.Options{})
	if err == nil {
		b.atEnd(func() { c.Close() })
	}
	return c, err
}

// bareKernel starts a kernel without an executor, as a Jupyter client does, and returns when
// it has answered.
func (b *bench) bareKernel(ctx context.Context) (*jupyter.Client, error) {
	dir, err := b.folder(b.memory)
	if err != nil {
		return nil, err
	}
	info, err := jupyter.NewIPC(dir)
	if err != nil {
		return nil, err
	}
	data, err := json.Marshal(info)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "connection.json")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		return nil, err
	}
	cmd := exec.Command(b.python, "-m", "ipykernel_launcher", "-f", file, "--HistoryManager.enabled=False")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "HOME="+dir)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	b.atEnd(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return b.dial(ctx, info)
}

// executeBare runs code until its reply and idle status.
func executeBare(ctx context.Context, c *jupyter.Client, code string) error {
	id, err := c.Send(ctx, jupyter.Shell, jupyter.MsgExecuteRequest, jupyter.ExecuteRequest{Code: code, StoreHistory: true})
	for replied, idle := false, false; err == nil && (!replied || !idle); {
		var m *jupyter.Message
		if m, err = c.Receive(ctx); err != nil || m.ParentHeader.MsgID != id {
			continue
		}
		switch m.Header.MsgType {
		case jupyter.MsgExecuteReply:
			replied = true
		case jupyter.MsgStatus:
			idle = bytes.Contains(m.Content, []byte(`"idle"`))
		}
	}
	return err
}

// The bytes of a sealed POST of 1+1 and of its answer.
const (
	plainUp   = 300
	plainDown = 790
)

// servePlain is the other program of the plain exchange: it reads a body and answers with one.
// It ends with stdin.
func servePlain(stdin io.Reader, stdout io.Writer) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Fprintln(stdout, l.Addr())
	go http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = w.Write(make([]byte, plainDown))
	}))
	_, err = io.Copy(io.Discard, stdin)
	return err
}

// plainExchange is a POST over net/http to another program on a connection that is open: no
// call through HTTP can be faster than it and the kernel together.
func (b *bench) plainExchange(ctx context.Context) (way, error) {
	self, err := os.Executable()
	if err != nil {
		return way{}, err
	}
	cmd := exec.Command(self, plainCommand)
	in, err := cmd.StdinPipe()
	if err != nil {
		return way{}, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return way{}, err
	}
	if err := cmd.Start(); err != nil {
		return way{}, err
	}
	b.atEnd(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return way{}, err
	}
	url := "http://" + strings.TrimSpace(address)
	return way{name: "plain HTTP", do: func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(make([]byte, plainUp)))
		if err != nil {
			return err
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		_, err = io.Copy(io.Discard, res.Body)
		return err
	}}, nil
}

// lineHost is an MCP host that writes and reads lines. The time of a call is the server's,
// from the line that asks to the line that answers: an SDK's client adds a quarter of a
// millisecond.
type lineHost struct {
	in    io.WriteCloser
	out   *bufio.Reader
	calls int
}

// lineHost starts an MCP server and completes the handshake.
func (b *bench) lineHost(c harness.HostConfig) (*lineHost, error) {
	cmd := c.Command()
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	b.atEnd(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	h := &lineHost{in: in, out: bufio.NewReader(out)}
	if err := h.ask("initialize", `{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}`); err != nil {
		return nil, err
	}
	_, err = io.WriteString(in, `{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n")
	return h, err
}

// ask sends a request and waits for its answer, which must be no error.
func (h *lineHost) ask(method, params string) error {
	h.calls++
	id := fmt.Sprintf(`"id":%d,`, h.calls)
	if _, err := fmt.Fprintf(h.in, `{"jsonrpc":"2.0",%s"method":%q,"params":%s}`+"\n", id, method, params); err != nil {
		return err
	}
	for {
		line, err := h.out.ReadBytes('\n')
		switch {
		case err != nil:
			return fmt.Errorf("%s: %w", method, err)
		case !bytes.Contains(line, []byte(id)):
			continue // a notification
		case !bytes.Contains(line, []byte(`"result":`)) || bytes.Contains(line, []byte(`"isError":true`)):
			return fmt.Errorf("%s: %.300s", method, line)
		}
		return nil
	}
}

// quickLine calls run_code_quick.
func quickLine(h *lineHost) way {
	return way{name: "tool call", do: func(context.Context) error {
		return h.ask("tools/call", `{"name":"run_code_quick","arguments":{"code":"`+onePlusOne+`"}}`)
	}}
}

// floodCode prints 100 MB.
const floodCode = "for _ in range(1_000_000): print('x' * 99)"

// flood measures the prints on a bare kernel and on an executor's.
func flood(ctx context.Context, b *bench) ([]row, error) {
	kernel, err := b.bareKernel(ctx)
	if err != nil {
		return nil, err
	}
	e, err := b.executor(ctx, b.memory)
	if err != nil {
		return nil, err
	}
	c, err := b.client(e.Ready.LocalURL)
	if err != nil {
		return nil, err
	}
	before, err := harness.MemoryOf(e.PID())
	if err != nil {
		return nil, err
	}
	s, err := timing{n: 5}.inTurn(ctx,
		way{name: "bare kernel", do: func(ctx context.Context) error { return executeBare(ctx, kernel, floodCode) }},
		way{name: "executor", do: func(ctx context.Context) error { return runToEnd(ctx, c, floodCode) }})
	if err != nil {
		return nil, err
	}
	after, err := harness.MemoryOf(e.PID())
	if err != nil {
		return nil, err
	}
	bare := latency("the bare kernel", s[0])
	bare.p99 = ""
	ours := latency("the executor, which keeps them on disk", s[1])
	ours.p99, ours.ratio, ours.against = "", s[0].over(s[1]), "bare kernel's rate"
	ours = ratioAtLeast(ours, 0.97)
	grown := after.Peak - before.Now
	memory := row{what: "growth of the executor's RSS", figure: fmt.Sprintf("%.0f MiB", grown), target: atMost(grown, 48, " MiB")}
	return []row{bare, ours, memory}, nil
}

// runToEnd submits code and asks now and then whether it has finished. It does not read
// the output.
func runToEnd(ctx context.Context, c *client.Client, code string) error {
	x, err := c.Submit(ctx, contract.Submit{Code: code, TimeoutSeconds: 120})
	every := time.NewTicker(20 * time.Millisecond)
	defer every.Stop()
	for err == nil && !x.Status.Finished() {
		<-every.C
		var list contract.ExecutionList
		if list, err = c.List(ctx, 1); err == nil {
			x = list.Executions[0]
		}
	}
	if err == nil && x.Status != contract.StatusSucceeded {
		err = fmt.Errorf("the run ended %s: %s", x.Status, x.Reason)
	}
	return err
}
