package op

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"colabrelay/relay/client"
	"colabrelay/relay/hint"
	"colabrelay/relay/pairing"
	"colabrelay/relay/progress"
	"colabrelay/shared/contract"
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

	// For `colab-relay doctor`.
	Kernel     contract.Kernel `json:"-"`
	InstanceID string          `json:"-"`
	Clock      time.Duration   `json:"-"` // how far the VM's is ahead, if the relay corrects it
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
	if got.Kernel, err = vm.Kernel(ctx); err != nil {
		return got, err
	}
	got.Status, got.KernelStatus, got.Python = "connected", string(got.Kernel.Status), got.Kernel.Python
	got.LatencyMS = round(float64(time.Since(asked).Microseconds())/1000, 100)
	got.Version, got.InstanceID, got.Clock = health.Version, vm.InstanceID(), vm.ClockOffset()
	got.UptimeMinutes, got.MemoryAvailableGB, got.MemoryUsedPct = &health.UptimeMinutes, &health.MemoryAvailableGB, &health.MemoryUsedPct
	return got, nil
}

// Reach is Connect for a paired runtime. transport is runtimes.Config.Transport, or nil.
func Reach(ctx context.Context, r pairing.Runtime, transport func(pairing.Runtime) http.RoundTripper) (*Connection, error) {
	if r.URL == "" {
		return &Connection{Status: "unknown"}, pairing.ErrNoAddress
	}
	cfg := client.Config{BaseURL: r.URL, Secret: r.Secret, Comeback: r.Comeback()}
	if r.Provider != "" && transport != nil {
		cfg.Transport = transport(r)
	}
	vm, err := client.New(cfg)
	if err != nil {
		return &Connection{Status: "disconnected", ColabURL: r.URL}, err
	}
	defer vm.Close()
	return Connect(ctx, r.URL, vm)
}

// PersonProblem is the error object of a command's answer; nil for no error.
func PersonProblem(err error) *Problem {
	if err == nil {
		return nil
	}
	return problemOf(err).withHint(hint.Person(err))
}

func checkConnection() tool {
	return define(spec{
		title:       "Check the connection",
		summary:     "reports whether the VM answers, its memory and the kernel's state",
		description: "Use it at the start of a session and after connection errors: it says whether the VM answers, its uptime, free memory and kernel status, or what to do.",
	}, func(ctx context.Context, c *call, _ noArgs) (*Connection, *Problem) {
		got, err := Connect(ctx, c.target.URL, c.target.Client)
		got.RelayVersion = c.cfg.Version
		if err != nil {
			return got, problemOf(err)
		}
		c.checkKernel(got.Kernel.KernelID)
		got.SessionLeft = c.minutesLeft(nil)
		return got, nil
	})
}

func (c *Connection) text(w *words) {
	fmt.Fprintf(w, "%s: %s\n", c.Status, c.ColabURL)
	if c.LatencyMS != nil {
		fmt.Fprintf(w, "%s\n", c.Summary())
	}
}

// Summary says in a line what answers.
func (c *Connection) Summary() string {
	return fmt.Sprintf("executor %s, up %s, %.1f GB of memory available (%.0f%% used), kernel %s (Python %s), latency %.0f ms",
		inline(c.Version), progress.Duration(time.Duration(*c.UptimeMinutes*float64(time.Minute))), *c.MemoryAvailableGB, *c.MemoryUsedPct, inline(c.KernelStatus), inline(c.Python), *c.LatencyMS)
}
