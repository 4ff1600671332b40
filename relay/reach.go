package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"colabrelay/relay/client"
	"colabrelay/relay/hint"
	"colabrelay/relay/pairing"
	"colabrelay/relay/plain"
	"colabrelay/relay/progress"
	"colabrelay/relay/terminal"
	"colabrelay/shared/contract"
)

// reach sends one request, so that a command with a wrong address ends instead of
// retrying for ever.
func reach(ctx context.Context, c *client.Client) error {
	ctx, cancel := context.WithTimeout(ctx, client.ReachLimit)
	defer cancel()
	_, err := c.Kernel(ctx)
	return err
}

// connection is what answers at a runtime's address. Its fields have the names of the
// answer of check_colab_connection.
type connection struct {
	Status            string   `json:"status"` // connected, disconnected, or unknown without an address
	ColabURL          string   `json:"colab_url,omitempty"`
	LatencyMS         *float64 `json:"latency_ms,omitempty"`
	Version           string   `json:"version,omitempty"` // of the executor
	UptimeMinutes     *float64 `json:"uptime_minutes,omitempty"`
	MemoryAvailableGB *float64 `json:"memory_available_gb,omitempty"`
	MemoryUsedPct     *float64 `json:"memory_used_pct,omitempty"`
	KernelStatus      string   `json:"kernel_status,omitempty"`
	Python            string   `json:"python,omitempty"`
	Error             *failure `json:"error,omitempty"`

	err error // the cause of Error
}

// failure is an error in a JSON document.
type failure struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

// connect checks what answers at a runtime's address. transport is runtimes.Config.Transport;
// nil for a runtime that has no provider.
func connect(ctx context.Context, r pairing.Runtime, transport func(pairing.Runtime) http.RoundTripper) connection {
	if r.URL == "" {
		return connection{Status: "unknown", err: pairing.ErrNoAddress}
	}
	got := connection{Status: "disconnected", ColabURL: r.URL}
	if got.err = got.ask(ctx, r, transport); got.err == nil {
		got.Status = "connected"
		return got
	}
	got.Error = &failure{Message: got.err.Error(), Hint: hint.Person(got.err)}
	if lost, ok := errors.AsType[*client.Error](got.err); ok {
		got.Error.Code, got.Error.Message = string(lost.Kind), lost.Message
	} else if refused, ok := errors.AsType[*contract.Error](got.err); ok {
		got.Error.Code, got.Error.Message = string(refused.Code), refused.Message
	}
	return got
}

func (c *connection) ask(ctx context.Context, r pairing.Runtime, transport func(pairing.Runtime) http.RoundTripper) error {
	ctx, cancel := context.WithTimeout(ctx, client.ReachLimit)
	defer cancel()
	cfg := client.Config{BaseURL: r.URL, Secret: r.Secret}
	if r.Provider != "" && transport != nil {
		cfg.Transport = transport(r)
	}
	vm, err := client.New(cfg)
	if err != nil {
		return err
	}
	defer vm.Close()
	// The signed request proves that both sides have the same secret. Strangers can use up
	// the limit on unsigned requests, which must not make an executor seem unreachable.
	health, err := vm.SignedHealth(ctx)
	if err != nil {
		return err
	}
	asked := time.Now()
	kernel, err := vm.Kernel(ctx)
	if err != nil {
		return err
	}
	latency := float64(time.Since(asked).Microseconds()) / 1000
	c.LatencyMS, c.Version, c.KernelStatus, c.Python = &latency, health.Version, string(kernel.Status), kernel.Python
	c.UptimeMinutes, c.MemoryAvailableGB, c.MemoryUsedPct = &health.UptimeMinutes, &health.MemoryAvailableGB, &health.MemoryUsedPct
	return nil
}

// print writes the connection in indented lines that fit the terminal.
func (c *connection) print(out io.Writer, colours terminal.Colours) {
	switch c.Status {
	case "unknown":
		fmt.Fprintf(out, "  %s\n", colours.Warning(c.err.Error()))
		return
	case "connected":
		line := fmt.Sprintf("  connected: executor %s, up %s, %.1f GB of memory available, kernel %s (Python %s)\n",
			c.Version, progress.Duration(time.Duration(*c.UptimeMinutes*float64(time.Minute))), *c.MemoryAvailableGB, c.KernelStatus, c.Python)
		fmt.Fprint(out, strings.Replace(fitted(out, line), "connected:", colours.Good("connected:"), 1))
		return
	}
	text := "  not connected: " + plain.Line(c.err.Error()) + "\n"
	if c.Error.Hint != "" {
		text += "  next step: " + plain.Line(c.Error.Hint) + "\n"
	}
	fmt.Fprint(out, strings.Replace(fitted(out, text), "not connected:", colours.Bad("not connected:"), 1))
}

// fitted breaks the lines of text that are too long for the terminal out.
func fitted(out io.Writer, text string) string {
	if !terminal.Is(out) {
		return text
	}
	return wrap(text, terminal.Width(out))
}
