package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"time"
)

// hostLimit bounds the time of one host.
const hostLimit = 3 * time.Minute

// talks runs the hosts one after the other, all with the same executor.
func (l *lab) talks(ctx context.Context, only string) (err error) {
	relay, stop, err := l.vm(ctx, "talks")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	for _, h := range hosts {
		if only != "" && only != h.name || ctx.Err() != nil {
			continue
		}
		title, err := h.version(l.modules)
		if err != nil {
			return err
		}
		l.talk(ctx, h, title, relay)
	}
	return nil
}

// talk lets a host make the script's calls, and compares what the relay sent with what the model
// got.
func (l *lab) talk(ctx context.Context, h host, title string, relay map[string]string) {
	got, log, err := l.play(ctx, h, relay)
	trials := h.trials()
	if err != nil {
		l.report.check(title, "all calls made", fmt.Errorf("%d of %d: %w", len(got), len(trials), err))
	}
	for n, t := range trials[:min(len(got), len(trials))] {
		last := got[n][len(got[n])-1]
		if t.step.Until != "" {
			l.report.check(title, t.name, l.isMadeOnce(ctx, relay, last, len(got[n])))
			continue
		}
		var sent *sent
		sent, log = take(log, t.step)
		as := h.textsAs
		if sent != nil && sent.IsError {
			as, t.times = h.errorsAs, h.errorTimes
		}
		if as == nil {
			as = plain
		}
		l.report.check(title, t.name, t.check(last, sent, as))
	}
}

// play runs a host until it ends. It returns what the model got for each step, and what the
// relay sent.
func (l *lab) play(ctx context.Context, h host, relay map[string]string) (got [][]exchange, log []*sent, err error) {
	ctx, cancel := context.WithTimeout(ctx, hostLimit)
	defer cancel()
	record, err := l.recordOf(h.name)
	if err != nil {
		return nil, nil, err
	}
	var script []step
	for _, t := range h.trials() {
		script = append(script, t.step)
	}
	m, err := startModel(script, record)
	if err != nil {
		return nil, nil, err
	}
	defer m.close()
	s := l.setting(h, record, m, relay)
	configure := h.configure
	if configure == nil {
		configure = h.drive
	}
	args, env, err := configure(s)
	if err != nil {
		return nil, nil, err
	}
	cmd, err := s.command(ctx, args, env)
	if err != nil {
		return nil, nil, err
	}
	printed, err := output(cmd)
	last, problems := m.read()
	for _, p := range problems {
		err = errors.Join(err, errors.New(p))
	}
	if got, _ = bySteps(script, exchanges(last)); err == nil && len(got) != len(script) {
		err = errors.New("the host ended early")
	}
	log, failed := readLog(s.log)
	if err = errors.Join(err, failed); err != nil {
		err = fmt.Errorf("%w\nthe host printed: %s", err, tail(printed))
	}
	return got, log, errors.Join(err, os.WriteFile(filepath.Join(record, "output"), []byte(printed), 0o600))
}

// setting is what the host is started with.
func (l *lab) setting(h host, record string, m *model, relay map[string]string) setting {
	home, log := filepath.Join(l.dir, "home-"+filepath.Base(record)), filepath.Join(record, "relay.jsonl")
	program := h.program
	if h.configure == nil && program == "" {
		program = filepath.Join(h.name, "bin", "python")
	}
	return setting{
		home: home, work: filepath.Join(home, "work"), model: m.url, relay: relay, log: log,
		server: []string{l.self, proxyWord, log, l.binaries.Relay, "serve"},
		prompt: "Begin.", program: filepath.Join(l.modules, program),
	}
}

// recordOf returns a new folder for what one part records.
func (l *lab) recordOf(part string) (string, error) {
	dir := filepath.Join(l.keep, part)
	if err := os.MkdirAll(l.keep, 0o700); err != nil {
		return "", err
	}
	return dir, os.Mkdir(dir, 0o700)
}

// take returns the first call that a step made, and those after it. Some frameworks add null or
// the default for each argument that the model left out.
func take(log []*sent, s step) (*sent, []*sent) {
	for n, call := range log {
		missing := maps.Clone(s.Args)
		maps.DeleteFunc(missing, func(name string, value any) bool { return reflect.DeepEqual(call.Args[name], value) })
		if call.Tool == s.Tool && len(missing) == 0 {
			return call, log[n+1:]
		}
	}
	return nil, log
}

// tailBytes is how much of a host's output a failure shows.
const tailBytes = 3000

// tail returns the end of what a host printed.
func tail(text string) string {
	if len(text) > tailBytes {
		return "…" + text[len(text)-tailBytes:]
	}
	return text
}
