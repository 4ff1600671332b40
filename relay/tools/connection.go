package tools

import (
	"context"
	"fmt"
	"time"

	"colabrelay/relay/client"
)

type noArgs struct{ target }

// Connection is the answer of check_colab_connection.
type Connection struct {
	Status            string   `json:"status"` // connected or disconnected
	UptimeMinutes     *float64 `json:"uptime_minutes,omitzero"`
	MemoryAvailableGB *float64 `json:"memory_available_gb,omitzero"`
	MemoryUsedPct     *float64 `json:"memory_used_pct,omitzero"`
	ColabURL          string   `json:"colab_url"`
	LatencyMS         *float64 `json:"latency_ms,omitzero"`    // round trip time of one signed request
	KernelStatus      *string  `json:"kernel_status,omitzero"` // starting, idle, busy or dead
	Version           *string  `json:"version,omitzero"`       // release of the executor
	RelayVersion      string   `json:"relay_version"`
	SessionLeft       *float64 `json:"session_minutes_left,omitzero"` // estimated minutes until the VM ends, from the newest run or probe; absent if unknown
}

func checkConnection() tool {
	return define(spec{
		name: "check_colab_connection", title: "Check the connection",
		summary:     "reports whether the VM answers, its memory and the kernel's state",
		description: "Use it at the start of a session and after connection errors: it says whether the VM answers, its uptime, free memory and kernel status, or what to do.",
		readOnly:    true, idempotent: true, openWorld: true,
	}, func(ctx context.Context, c *call, _ noArgs) (*Connection, *Problem) {
		ctx, cancel := context.WithTimeout(ctx, client.ReachLimit)
		defer cancel()
		got := &Connection{Status: "disconnected", ColabURL: c.target.URL, RelayVersion: c.cfg.Version}
		health, err := c.target.Client.SignedHealth(ctx)
		if err != nil {
			return got, problemOf(err)
		}
		asked := time.Now()
		kernel, err := c.target.Client.Kernel(ctx)
		if err != nil {
			return got, problemOf(err)
		}
		status := string(kernel.Status)
		got.Status, got.KernelStatus = "connected", &status
		got.LatencyMS = round(float64(time.Since(asked).Microseconds())/1000, 100)
		got.Version = &health.Version
		got.UptimeMinutes, got.MemoryAvailableGB, got.MemoryUsedPct = &health.UptimeMinutes, &health.MemoryAvailableGB, &health.MemoryUsedPct
		c.checkKernel(kernel.KernelID)
		got.SessionLeft = c.vmMinutesLeft()
		return got, nil
	})
}

func (c *Connection) text(b *words) {
	fmt.Fprintf(b, "%s: %s\n", c.Status, c.ColabURL)
	if c.KernelStatus != nil {
		fmt.Fprintf(b, "Kernel %s, latency %.0f ms\n", inline(*c.KernelStatus), *c.LatencyMS)
	}
	if c.Version != nil {
		fmt.Fprintf(b, "Executor %s, up %.0f min, %.1f GB of memory available (%.0f%% used)\n",
			inline(*c.Version), *c.UptimeMinutes, *c.MemoryAvailableGB, *c.MemoryUsedPct)
	}
}
