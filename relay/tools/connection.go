package tools

import (
	"context"
	"fmt"
	"time"

	"colabrelay/relay/client"
)

type noArgs struct{ target }

// Connection is the answer of check_colab_connection, and of `colab-relay status` for each runtime.
type Connection struct {
	Status            string   `json:"status"` // connected, disconnected, or unknown without an address
	ColabURL          string   `json:"colab_url,omitempty"`
	UptimeMinutes     *float64 `json:"uptime_minutes,omitzero"`
	MemoryAvailableGB *float64 `json:"memory_available_gb,omitzero"`
	MemoryUsedPct     *float64 `json:"memory_used_pct,omitzero"`
	LatencyMS         *float64 `json:"latency_ms,omitzero"`     // round trip time of one signed request
	KernelStatus      string   `json:"kernel_status,omitempty"` // starting, idle, busy or dead
	Python            string   `json:"python,omitempty"`        // version
	Version           string   `json:"version,omitempty"`       // release of the executor
	RelayVersion      string   `json:"relay_version,omitempty"`
	SessionLeft       *float64 `json:"session_minutes_left,omitzero"` // estimated minutes until the VM ends, from the newest run or probe; absent if unknown

	kernelID string
}

// Connect asks the executor at url, which vm reaches, how it is. The signed request proves that both
// sides have the same secret. Strangers can use up the limit on unsigned requests, which must not
// make an executor seem unreachable.
func Connect(ctx context.Context, url string, vm *client.Client) (*Connection, error) {
	ctx, cancel := context.WithTimeout(ctx, client.ReachLimit)
	defer cancel()
	got := &Connection{Status: "disconnected", ColabURL: url}
	health, err := vm.SignedHealth(ctx)
	if err != nil {
		return got, err
	}
	asked := time.Now()
	kernel, err := vm.Kernel(ctx)
	if err != nil {
		return got, err
	}
	got.Status, got.KernelStatus, got.Python, got.kernelID = "connected", string(kernel.Status), kernel.Python, kernel.KernelID
	got.LatencyMS = round(float64(time.Since(asked).Microseconds())/1000, 100)
	got.Version = health.Version
	got.UptimeMinutes, got.MemoryAvailableGB, got.MemoryUsedPct = &health.UptimeMinutes, &health.MemoryAvailableGB, &health.MemoryUsedPct
	return got, nil
}

func checkConnection() tool {
	return define(spec{
		name: "check_colab_connection", title: "Check the connection",
		command:     Command{Name: "status", Own: true},
		summary:     "reports whether the VM answers, its memory and the kernel's state",
		description: "Use it at the start of a session and after connection errors: it says whether the VM answers, its uptime, free memory and kernel status, or what to do.",
		readOnly:    true, idempotent: true, openWorld: true,
	}, func(ctx context.Context, c *call, _ noArgs) (*Connection, *Problem) {
		got, err := Connect(ctx, c.target.URL, c.target.Client)
		got.RelayVersion = c.cfg.Version
		if err != nil {
			return got, problemOf(err)
		}
		c.checkKernel(got.kernelID)
		got.SessionLeft = c.vmMinutesLeft()
		return got, nil
	})
}

func (c *Connection) text(b *words) {
	fmt.Fprintf(b, "%s: %s\n", c.Status, c.ColabURL)
	if c.LatencyMS != nil {
		fmt.Fprintf(b, "Kernel %s (Python %s), latency %.0f ms\n", inline(c.KernelStatus), inline(c.Python), *c.LatencyMS)
		fmt.Fprintf(b, "Executor %s, up %.0f min, %.1f GB of memory available (%.0f%% used)\n",
			inline(c.Version), *c.UptimeMinutes, *c.MemoryAvailableGB, *c.MemoryUsedPct)
	}
}
