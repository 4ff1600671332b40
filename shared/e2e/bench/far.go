package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/freeport"
	"colabrelay/shared/stacks"
)

// farRuns measures 1+1 at several delays. Each way has a wire of its own, which counts.
func farRuns(ctx context.Context, b *bench) []row {
	p := b.pair(ctx)
	flask := ""
	if b.bridge != "" {
		flask = b.flask(ctx)
	}
	var rows []row
	for _, delay := range []struct {
		roundTrip time.Duration
		n         int
	}{{20 * time.Millisecond, 60}, {100 * time.Millisecond, 20}, {250 * time.Millisecond, 15}} {
		more := farRun(ctx, b, delay.roundTrip, delay.n, p.executor.Ready.LocalURL, flask)
		rows = append(rows, more...)
	}
	return rows
}

// farWay is a way through a wire of its own.
type farWay struct {
	way
	wire *harness.Wire
}

func farRun(ctx context.Context, b *bench, roundTrip time.Duration, n int, executor, flask string) []row {
	far := farWays(ctx, b, roundTrip, executor, flask)
	timing{n: 3}.inTurn(ctx, only(far)...)
	for _, f := range far {
		f.wire.CutAt() // resets the counts
	}
	s := timing{n: n}.inTurn(ctx, only(far)...)
	var bridge samples
	if flask != "" {
		bridge = s[len(s)-1]
	}
	rows := make([]row, len(far))
	for i, f := range far {
		rows[i] = latency(fmt.Sprintf("%s at %s", f.name, short(roundTrip)), s[i])
		rows[i].note = perCall(f.wire.Traffic(), n)
		if i < 2 {
			rows[i] = rows[i].comparedTo("old-style bridge", s[i], bridge)
			rows[i].target = oneRoundTrip(f.wire.Traffic(), n)
		}
	}
	return rows
}

// farWays returns POST, tool call and, if there is one, the bridge.
func farWays(ctx context.Context, b *bench, roundTrip time.Duration, executor, flask string) []farWay {
	posts, url := b.wire(executor, roundTrip)
	c := b.client(url)
	tools, url := b.wire(executor, roundTrip)
	h := b.host(ctx, url)
	far := []farWay{{post(c), posts}, {toolCall(h), tools}}
	if flask == "" {
		return far
	}
	bridged, url := b.wire(flask, roundTrip)
	old := b.bridgeHost(ctx, url)
	w := toolCall(old)
	w.name = "old-style bridge"
	return append(far, farWay{w, bridged})
}

func only(far []farWay) []way {
	ways := make([]way, len(far))
	for i, f := range far {
		ways[i] = f.way
	}
	return ways
}

func perCall(t harness.Traffic, calls int) string {
	n := float64(calls)
	return fmt.Sprintf("of a call: requests %.3g, new connections %.3g, bytes %.0f up, %.0f down",
		float64(t.Requests)/n, float64(t.Connections)/n, float64(t.Up)/n, float64(t.Down)/n)
}

func oneRoundTrip(t harness.Traffic, calls int) target {
	return target{"1 request, no new connection", t.Requests == int64(calls) && t.Connections == 0}
}

// bridgeToken protects the old-style bridge as far as such bridges were.
const bridgeToken = "token"

// flask starts the VM's side of the old-style bridge and returns its address.
func (b *bench) flask(ctx context.Context) (url string) {
	address := harness.Must(freeport.Address())
	_, port, _ := net.SplitHostPort(address)
	cmd := exec.Command(b.bridge, bridgeScript("flask_app.py"), port)
	cmd.Dir = b.memory
	cmd.Env = append(os.Environ(), "BRIDGE_TOKEN="+bridgeToken)
	harness.Check(cmd.Start())
	b.atEnd(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	url = "http://" + address
	awaitHTTP(ctx, url)
	return url
}

func bridgeScript(name string) string {
	return filepath.Join(stacks.Root(), "shared", "e2e", "bench", "bridge", name)
}

// awaitHTTP returns when something answers at url.
func awaitHTTP(ctx context.Context, url string) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	harness.Check(harness.Poll(ctx, func() (bool, error) {
		res, err := http.Get(url)
		if err != nil {
			return false, nil
		}
		return true, res.Body.Close()
	}))
}

// bridgeHost starts an MCP host with the laptop's side of the old-style bridge, whose other
// side is at url.
func (b *bench) bridgeHost(ctx context.Context, url string) *harness.Host {
	return b.startHost(ctx, b.bridgeConfig(url))
}

func (b *bench) bridgeConfig(url string) harness.HostConfig {
	return harness.HostConfig{
		Binary: b.bridge, Args: []string{bridgeScript("mcp_server.py")}, Dir: b.memory,
		Env: []string{"BRIDGE_URL=" + url, "BRIDGE_TOKEN=" + bridgeToken},
	}
}
