package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"colabrelay/relay/client"
	"colabrelay/relay/hint"
	"colabrelay/relay/pairing"
	"colabrelay/relay/plain"
)

// checkTime bounds how long a person waits to learn whether an executor answers.
const checkTime = 10 * time.Second

// reach sends one request, so that a command with a wrong address ends instead of
// retrying for ever.
func reach(ctx context.Context, c *client.Client) error {
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	_, err := c.Kernel(ctx)
	return err
}

// printExecutor prints what answers at a runtime's address. It reports whether that is an
// executor with the runtime's secret.
func printExecutor(ctx context.Context, r pairing.Runtime, out io.Writer) bool {
	line, err := describeExecutor(ctx, r)
	if err == nil {
		fmt.Fprintf(out, "  connected: %s\n", line)
		return true
	}
	fmt.Fprintf(out, "  not connected: %s\n", plain.Line(err.Error()))
	if step := hint.Person(err); step != "" {
		fmt.Fprintf(out, "  next step: %s\n", plain.Line(step))
	}
	return false
}

func describeExecutor(ctx context.Context, r pairing.Runtime) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	c, err := client.New(client.Config{BaseURL: r.URL, Secret: r.Secret})
	if err != nil {
		return "", err
	}
	defer c.Close()
	// The signed request proves that both sides have the same secret. Strangers can use up
	// the limit on unsigned requests, which must not make an executor seem unreachable.
	health, err := c.SignedHealth(ctx)
	if err != nil {
		return "", err
	}
	kernel, err := c.Kernel(ctx)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("executor %s, up %.0f min, %.1f GB of memory available, kernel %s (Python %s)",
		health.Version, health.UptimeMinutes, health.MemoryAvailableGB, kernel.Status, kernel.Python), nil
}
