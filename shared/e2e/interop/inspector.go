package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"
)

// inspect runs the Inspector's command line in all eras. Strict means that it reports each
// schema that some model provider would not take.
func (l *lab) inspect(ctx context.Context) {
	for _, era := range []string{"legacy", "auto", "modern"} {
		name := "Inspector 2.12.0, " + era
		stdout, stderr, err := l.inspector(ctx, era, "--method", "tools/list", "--strict")
		if warnings := others(stderr); err == nil && warnings != "" {
			err = errors.New(warnings)
		}
		var list struct{ Tools []struct{ Name string } }
		if err == nil {
			err = json.Unmarshal(stdout, &list)
		}
		if err == nil && len(list.Tools) < 19 {
			err = fmt.Errorf("%d tools", len(list.Tools))
		}
		l.report.check(name, "list tools, strict, no warnings", err)

		stdout, stderr, err = l.inspector(ctx, era, "--tool-arg", "code=6*7", "--method", "tools/call", "--tool-name", "run_code_quick")
		if err != nil || !strings.Contains(string(stdout), `result “42”`) {
			err = fmt.Errorf("%v: %s%s", err, stdout, stderr)
		}
		l.report.check(name, "a call", err)
	}
}

func (l *lab) inspector(ctx context.Context, era string, args ...string) ([]byte, string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	command := []string{
		filepath.Join(l.installed, "node", "node_modules", ".bin", "mcp-inspector"), "--cli",
		"-e", l.env[0], "-e", l.env[1], "--protocol-era", era,
	}
	return l.output(ctx, append(append(command, args...), l.relay, "serve")...)
}

// others returns the lines of stderr that the relay did not log.
func others(stderr string) string {
	var others strings.Builder
	for line := range strings.Lines(stderr) {
		if !strings.Contains(line, " component=relay ") && strings.TrimSpace(line) != "" {
			others.WriteString(line)
		}
	}
	return others.String()
}
