package tools

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// connectionTime bounds check_colab_connection, which should report a dead VM soon.
const connectionTime = 10 * time.Second

type noArgs struct{ target }

// Connection is the answer of check_colab_connection.
type Connection struct {
	Status            string   `json:"status" doc:"connected or disconnected."`
	UptimeMinutes     *float64 `json:"uptime_minutes"`
	MemoryAvailableGB *float64 `json:"memory_available_gb"`
	MemoryUsedPct     *float64 `json:"memory_used_pct"`
	ColabURL          string   `json:"colab_url"`
	LatencyMS         *float64 `json:"latency_ms" doc:"Round trip time of one signed request."`
	KernelStatus      *string  `json:"kernel_status" doc:"starting, idle, busy or dead."`
	Version           *string  `json:"version" doc:"Release of the executor."`
	RelayVersion      string   `json:"relay_version"`
	SessionLeft       *float64 `json:"session_minutes_left" doc:"Estimated minutes until the VM ends, from the newest run or probe; null if unknown."`
}

func checkConnection() tool {
	return define(spec{
		name: "check_colab_connection", title: "Check the connection",
		description: "Check whether the remote VM can be reached and is the paired one: uptime, free memory, latency, kernel status. Use it at the start of a session and after connection errors; its error says what to do.",
		readOnly:    true, idempotent: true, openWorld: true,
	}, func(ctx context.Context, c *call, _ noArgs) (*Connection, *Problem) {
		ctx, cancel := context.WithTimeout(ctx, connectionTime)
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

func (c *Connection) text(b *strings.Builder) {
	fmt.Fprintf(b, "%s: %s\n", c.Status, c.ColabURL)
	if c.KernelStatus != nil {
		fmt.Fprintf(b, "Kernel %s, latency %.0f ms\n", *c.KernelStatus, *c.LatencyMS)
	}
	if c.Version != nil {
		fmt.Fprintf(b, "Executor %s, up %.0f min, %.1f GB of memory available (%.0f%% used)\n",
			*c.Version, *c.UptimeMinutes, *c.MemoryAvailableGB, *c.MemoryUsedPct)
	}
}
