package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"
)

// suiteLimit bounds the time of the conformance suite for one revision.
const suiteLimit = 3 * time.Minute

// conform runs all server scenarios of the official conformance suite, over the bridge. The
// failures in expected-failures.yml are known; any other one, and one of them that passes,
// fails.
func (l *lab) conform(ctx context.Context) error {
	for _, revision := range []string{"2025-11-25", "2026-07-28"} {
		b, err := startBridge(l.relay, l.env)
		if err != nil {
			return fmt.Errorf("starting the bridge: %w", err)
		}
		l.suite(ctx, revision, b.url)
		if err := b.close(); err != nil {
			return fmt.Errorf("the relay behind the bridge: %w", err)
		}
	}
	return nil
}

func (l *lab) suite(ctx context.Context, revision, url string) {
	ctx, cancel := context.WithTimeout(ctx, suiteLimit)
	defer cancel()
	name := "conformance 0.2.0-alpha.12, " + revision
	stdout, stderr, err := l.output(ctx, filepath.Join(l.installed, "node", "node_modules", ".bin", "conformance"),
		"server", "--url", url, "--suite", "all", "--spec-version", revision,
		"--expected-failures", filepath.Join(l.drivers, "expected-failures.yml"))
	_, summary, _ := strings.Cut(string(stdout), "=== SUMMARY ===")
	scenarios, verdict, complete := strings.Cut(summary, "\nTotal:")
	for line := range strings.Lines(scenarios) {
		if scenario, passed := strings.CutPrefix(strings.TrimSpace(line), "✓ "); passed {
			l.report.check(name, scenario, nil)
		}
	}
	for line := range strings.Lines(verdict) {
		if known, ok := strings.CutPrefix(strings.TrimSpace(line), "~ "); ok {
			l.report.expect(name, known)
		}
	}
	if err == nil && !complete {
		err = errors.New("no summary")
	}
	if err != nil {
		err = fmt.Errorf("%w%s%s", err, verdict, stderr)
	}
	l.report.check(name, "no failure but the expected ones, none of which passes", err)
}
