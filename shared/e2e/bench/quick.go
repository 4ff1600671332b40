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
func quickRuns(ctx context.Context, b *bench) []row {
	p := b.pair(ctx)
	kernel := b.kernelOf(ctx, p.executor)
	servers := []harness.HostConfig{b.relayConfig(p.executor.Ready.LocalURL)}
	if b.bridge != "" {
		servers = append(servers, b.bridgeConfig(b.flask(ctx)))
	}
	ways := []way{bareRun(kernel), b.plainExchange(), post(p.client)}
	for _, server := range servers {
		ways = append(ways, quickLine(b.lineHost(server)))
	}
	s := timing{n: 1000, warmUps: 100}.inTurn(ctx, ways...)
	bare, exchange, posts, tools := s[0], s[1], s[2], s[3]
	rows := []row{
		latency("the bare kernel: our Jupyter client on the same kernel", bare),
		floor(exchange, bare),
		ratioAtMost(latency("POST /v1/executions through relay/client", posts).comparedTo("bare kernel", posts, bare), 1.12),
		ratioAtMost(latency("run_code_quick over stdio", tools).comparedTo("bare kernel", tools, bare), 1.25),
	}
	if b.bridge == "" {
		return rows
	}
	bridge := s[4]
	r := row{what: "run_code_quick against the old-style bridge"}.comparedTo("old-style bridge", tools, bridge)
	return append(rows, latency("the old-style bridge's tool over stdio", bridge).comparedTo("bare kernel", bridge, bare), ratioAtMost(r, 1))
}

func bareRun(kernel *jupyter.Client) way {
	return way{name: "bare kernel", do: func(ctx context.Context) { executeBare(ctx, kernel, onePlusOne) }}
}

func post(c *client.Client) way {
	return way{name: "POST", do: func(ctx context.Context) {
		harness.Must(c.Submit(ctx, contract.Submit{Code: onePlusOne, WaitSeconds: 10}))
	}}
}

func toolCall(h *harness.Host) way {
	return way{name: "tool call", do: func(ctx context.Context) {
		call(ctx, h, "run_code_quick", map[string]any{"code": onePlusOne})
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
func (b *bench) kernelOf(ctx context.Context, e *harness.Executor) *jupyter.Client {
	var record struct{ PID int }
	readJSON(filepath.Join(e.Config.Dir, ".colab-relay", "kernel.json"), &record)
	cmdline := harness.Must(os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", record.PID)))
	args := strings.Split(string(cmdline), "\x00")
	var info jupyter.ConnectionInfo
	readJSON(args[slices.Index(args, "-f")+1], &info)
	return b.dial(ctx, info)
}

func readJSON(path string, into any) {
	data := harness.Must(os.ReadFile(path))
	harness.Check(json.Unmarshal(data, into))
}

// dial connects to a kernel. It waits for one that is starting.
func (b *bench) dial(ctx context.Context, info jupyter.ConnectionInfo) *jupyter.Client {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	c := harness.Must(jupyter.Dial(ctx, info, jupyter.Options{}))
	b.atEnd(func() { c.Close() })
	return c
}

// bareKernel starts a kernel without an executor, as a Jupyter client does, and returns when
// it has answered.
func (b *bench) bareKernel(ctx context.Context) *jupyter.Client {
	dir := b.folder(b.memory)
	info := harness.Must(jupyter.NewIPC(dir))
	data := harness.Must(json.Marshal(info))
	file := filepath.Join(dir, "connection.json")
	harness.Check(os.WriteFile(file, data, 0o600))
	cmd := exec.Command(b.python, "-m", "ipykernel_launcher", "-f", file, "--HistoryManager.enabled=False")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "HOME="+dir)
	harness.Check(cmd.Start())
	b.atEnd(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return b.dial(ctx, info)
}

// executeBare runs code until its reply and idle status.
func executeBare(ctx context.Context, c *jupyter.Client, code string) {
	id := harness.Must(c.Send(ctx, jupyter.Shell, jupyter.MsgExecuteRequest, jupyter.ExecuteRequest{Code: code, StoreHistory: true}))
	for replied, idle := false, false; !replied || !idle; {
		m := harness.Must(c.Receive(ctx))
		if m.ParentHeader.MsgID != id {
			continue
		}
		switch m.Header.MsgType {
		case jupyter.MsgExecuteReply:
			replied = true
		case jupyter.MsgStatus:
			idle = bytes.Contains(m.Content, []byte(`"idle"`))
		}
	}
}

// The bytes of a sealed POST of 1+1 and of its answer.
const (
	plainUp   = 300
	plainDown = 790
)

// servePlain is the other program of the plain exchange: it reads a body and answers with one.
// It ends with stdin.
func servePlain(stdin io.Reader, stdout io.Writer) {
	l := harness.Must(net.Listen("tcp", "127.0.0.1:0"))
	fmt.Fprintln(stdout, l.Addr())
	go http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = w.Write(make([]byte, plainDown))
	}))
	harness.Must(io.Copy(io.Discard, stdin))
}

// plainExchange is a POST over net/http to another program on a connection that is open: no
// call through HTTP can be faster than it and the kernel together.
func (b *bench) plainExchange() way {
	_, out := b.piped(exec.Command(harness.Must(os.Executable()), plainCommand))
	address := harness.Must(out.ReadString('\n'))
	url := "http://" + strings.TrimSpace(address)
	return way{name: "plain HTTP", do: func(ctx context.Context) {
		req := harness.Must(http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(make([]byte, plainUp))))
		res := harness.Must(http.DefaultClient.Do(req))
		defer res.Body.Close()
		harness.Must(io.Copy(io.Discard, res.Body))
	}}
}

// piped starts a program that ends with its standard input.
func (b *bench) piped(cmd *exec.Cmd) (io.Writer, *bufio.Reader) {
	in, out := harness.Must(cmd.StdinPipe()), harness.Must(cmd.StdoutPipe())
	harness.Check(cmd.Start())
	b.atEnd(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	return in, bufio.NewReader(out)
}

// lineHost is an MCP host that writes and reads lines. The time of a call is the server's,
// from the line that asks to the line that answers: an SDK's client adds a quarter of a
// millisecond.
type lineHost struct {
	in    io.Writer
	out   *bufio.Reader
	calls int
}

// lineHost starts an MCP server and completes the handshake.
func (b *bench) lineHost(c harness.HostConfig) *lineHost {
	in, out := b.piped(c.Command())
	h := &lineHost{in: in, out: out}
	h.ask("initialize", `{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}`)
	harness.Must(io.WriteString(in, `{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n"))
	return h
}

// ask sends a request and waits for its answer, which must be no error.
func (h *lineHost) ask(method, params string) {
	h.calls++
	id := fmt.Sprintf(`"id":%d,`, h.calls)
	harness.Must(fmt.Fprintf(h.in, `{"jsonrpc":"2.0",%s"method":%q,"params":%s}`+"\n", id, method, params))
	for {
		line := harness.Must(h.out.ReadBytes('\n'))
		if bytes.Contains(line, []byte(id)) { // it is no notification
			harness.FailIf(!bytes.Contains(line, []byte(`"result":`)) || bytes.Contains(line, []byte(`"isError":true`)), "%s: %.300s", method, line)
			return
		}
	}
}

// quickLine calls run_code_quick.
func quickLine(h *lineHost) way {
	return way{name: "tool call", do: func(context.Context) {
		h.ask("tools/call", `{"name":"run_code_quick","arguments":{"code":"`+onePlusOne+`"}}`)
	}}
}

// floodCode prints 100 MB.
const floodCode = "for _ in range(1_000_000): print('x' * 99)"

// flood measures the prints on a bare kernel and on an executor's.
func flood(ctx context.Context, b *bench) []row {
	kernel := b.bareKernel(ctx)
	e := b.executor(ctx, b.memory)
	c := b.client(e.Ready.LocalURL)
	before := harness.Must(harness.MemoryOf(e.PID()))
	s := timing{n: 5}.inTurn(ctx,
		way{name: "bare kernel", do: func(ctx context.Context) { executeBare(ctx, kernel, floodCode) }},
		way{name: "executor", do: func(ctx context.Context) { runToEnd(ctx, c, floodCode) }})
	after := harness.Must(harness.MemoryOf(e.PID()))
	bare := latency("the bare kernel", s[0])
	bare.p99 = ""
	ours := latency("the executor, which keeps them on disk", s[1])
	ours.p99, ours.ratio, ours.against = "", s[0].over(s[1]), "bare kernel's rate"
	ours = ratioAtLeast(ours, 0.97)
	grown := after.Peak - before.Now
	memory := row{what: "growth of the executor's RSS", figure: fmt.Sprintf("%.0f MiB", grown), target: atMost(grown, 48, " MiB")}
	return []row{bare, ours, memory}
}

// runToEnd submits code and asks now and then whether it has finished. It does not read
// the output.
func runToEnd(ctx context.Context, c *client.Client, code string) {
	x := harness.Must(c.Submit(ctx, contract.Submit{Code: code, TimeoutSeconds: 120}))
	every := time.NewTicker(20 * time.Millisecond)
	defer every.Stop()
	for !x.Status.Finished() {
		<-every.C
		x = harness.Must(c.List(ctx, 1)).Executions[0]
	}
	harness.FailIf(x.Status != contract.StatusSucceeded, "the run ended %s: %s", x.Status, x.Reason)
}
