package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// clientLimit bounds the time of one client.
const clientLimit = 3 * time.Minute

// sdk is a client whose driver prints a JSON line for each check.
type sdk struct {
	name    string
	command []string
	checks  int // how many it must report
}

// clients returns the SDKs in all eras that they know.
func (l *lab) clients() []sdk {
	node := filepath.Join(l.installed, "node", "node_modules", "node", "bin", "node")
	python := func(version string) string { return filepath.Join(l.installed, "python"+version, "bin", "python") }
	script := func(name string) string { return filepath.Join(l.installed, "node", name) }
	all := []sdk{{"TypeScript SDK 1.32.2", []string{node, script("client1.mjs"), l.relay}, 8}}
	for _, era := range []string{"legacy", "auto", "2026-07-28"} {
		checks := 9
		if era == "legacy" {
			checks = 8 // listen came later
		}
		all = append(all,
			sdk{"TypeScript client 2.4.0, " + era, []string{node, script("client2.mjs"), era, l.relay}, checks},
			sdk{"Python SDK 2.3.0, " + era, []string{python("2"), filepath.Join(l.drivers, "python", "drive2.py"), era, l.relay}, checks - 1})
	}
	return append(all, sdk{"Python SDK 1.30.0", []string{python("1"), filepath.Join(l.drivers, "python", "drive1.py"), l.relay}, 7})
}

// drive runs a client and reports its checks.
func (l *lab) drive(ctx context.Context, c sdk) {
	ctx, cancel := context.WithTimeout(ctx, clientLimit)
	defer cancel()
	stdout, stderr, err := l.output(ctx, c.command...)
	seen := 0
	for lines := bufio.NewScanner(bytes.NewReader(stdout)); lines.Scan(); seen++ {
		var line struct{ Check, Error string }
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			l.report.check(c.name, "its output", fmt.Errorf("%q: %w", lines.Text(), err))
			return
		}
		var failed error
		if line.Error != "" {
			failed = errors.New(line.Error)
		}
		l.report.check(c.name, line.Check, failed)
	}
	if err != nil || seen != c.checks {
		l.report.check(c.name, "all checks made", fmt.Errorf("%d of %d, exit: %v\n%s", seen, c.checks, err, stderr))
	}
}

// output runs a command with the environment of the relay.
func (l *lab) output(ctx context.Context, command ...string) (stdout []byte, stderr string, err error) {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	var errs strings.Builder
	cmd.Env, cmd.Stderr, cmd.WaitDelay = l.env, &errs, 5*time.Second
	stdout, err = cmd.Output()
	return stdout, errs.String(), err
}
