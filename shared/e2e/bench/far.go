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
func farRuns(ctx context.Context, b *bench) ([]row, error) {
	p, err := b.pair(ctx)
	if err != nil {
		return nil, err
	}
	flask := ""
	if b.bridge != "" {
		if flask, err = b.flask(ctx); err != nil {
			return nil, err
		}
	}
	var rows []row
	for _, delay := range []struct {
		roundTrip time.Duration
		n         int
	}{{20 * time.Millisecond, 60}, {100 * time.Millisecond, 20}, {250 * time.Millisecond, 15}} {
		more, err := farRun(ctx, b, delay.roundTrip, delay.n, p.executor.Ready.LocalURL, flask)
		if err != nil {
			return rows, err
		}
		rows = append(rows, more...)
	}
	return rows, nil
}

// farWay is a way through a wire of its own.
type farWay struct {
	way
	wire *harness.Wire
}

func farRun(ctx context.Context, b *bench, roundTrip time.Duration, n int, executor, flask string) ([]row, error) {
	far, err := farWays(ctx, b, roundTrip, executor, flask)
	if err != nil {
		return nil, err
	}
	if _, err := (timing{n: 3}).inTurn(ctx, only(far)...); err != nil {
		return nil, err
	}
	for _, f := range far {
		f.wire.CutAt() // resets the counts
	}
	s, err := timing{n: n}.inTurn(ctx, only(far)...)
	if err != nil {
		return nil, err
	}
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
	return rows, nil
}

// farWays returns POST, tool call and, if there is one, the bridge.
func farWays(ctx context.Context, b *bench, roundTrip time.Duration, executor, flask string) ([]farWay, error) {
	posts, url, err := b.wire(executor, roundTrip)
	if err != nil {
		return nil, err
	}
	c, err := b.client(url)
	if err != nil {
		return nil, err
	}
	tools, url, err := b.wire(executor, roundTrip)
	if err != nil {
		return nil, err
	}
	h, err := b.host(ctx, url)
	if err != nil {
		return nil, err
	}
	far := []farWay{{post(c), posts}, {toolCall(h), tools}}
	if flask == "" {
		return far, nil
	}
	bridged, url, err := b.wire(flask, roundTrip)
	if err != nil {
		return nil, err
	}
	old, err := b.bridgeHost(ctx, url)
	if err != nil {
		return nil, err
	}
	w := toolCall(old)
	w.name = "old-style bridge"
	return append(far, farWay{w, bridged}), nil
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
func (b *bench) flask(ctx context.Context) (url string, err error) {
	address, err := freeport.Address()
	if err != nil {
		return "", err
	}
	_, port, _ := net.SplitHostPort(address)
	cmd := exec.Command(b.bridge, bridgeScript("flask_app.py"), port)
	cmd.Dir = b.memory
	cmd.Env = append(os.Environ(), "BRIDGE_TOKEN="+bridgeToken)
	if err := cmd.Start(); err != nil {
		return "", err
	}
	b.atEnd(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return "http://" + address, awaitHTTP(ctx, "http://"+address)
}

func bridgeScript(name string) string {
	return filepath.Join(stacks.Root(), "shared", "e2e", "bench", "bridge", name)
}

// awaitHTTP returns when something answers at url.
func awaitHTTP(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return harness.Poll(ctx, func() (bool, error) {
		res, err := http.Get(url)
		if err != nil {
			return false, nil
		}
		return true, res.Body.Close()
	})
}

// bridgeHost starts an MCP host with the laptop's side of the old-style bridge, whose other
// side is at url.
func (b *bench) bridgeHost(ctx context.Context, url string) (*harness.Host, error) {
	return b.startHost(ctx, b.bridgeConfig(url))
}

func (b *bench) bridgeConfig(url string) harness.HostConfig {
	return harness.HostConfig{
		Binary: b.bridge, Args: []string{bridgeScript("mcp_server.py")}, Dir: b.memory,
		Env: []string{"BRIDGE_URL=" + url, "BRIDGE_TOKEN=" + bridgeToken},
	}
}
