package main

import (
	"context"
	"errors"
	"fmt"
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
	if err == nil && len(got) != len(trials) {
		err = errors.New("the host ended early")
	}
	if err != nil {
		l.report.check(title, "all calls made", fmt.Errorf("%d of %d: %w", len(got), len(trials), err))
	}
	for n, t := range trials[:min(len(got), len(trials))] {
		var sent *sent
		sent, log = take(log, t.step)
		as := form(plain)
		if sent != nil && sent.IsError && h.errorsAs != nil {
			as = h.errorsAs
		}
		l.report.check(title, t.name, t.check(got[n], sent, as))
	}
}

// play runs a host until it ends. It returns what the model got and what the relay sent.
func (l *lab) play(ctx context.Context, h host, relay map[string]string) (got []exchange, log []*sent, err error) {
	ctx, cancel := context.WithTimeout(ctx, hostLimit)
	defer cancel()
	record, err := l.recordOf(h.name)
	if err != nil {
		return nil, nil, err
	}
	var script []step
	for _, t := range trials {
		script = append(script, t.step)
	}
	m, err := startModel(script, record)
	if err != nil {
		return nil, nil, err
	}
	defer m.close()
	s := l.setting(h, record, m, relay)
	args, env, err := h.configure(s)
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
	log, failed := readLog(s.log)
	if err = errors.Join(err, failed); err != nil {
		err = fmt.Errorf("%w\nthe host printed: %s", err, tail(printed))
	}
	return exchanges(last), log, errors.Join(err, os.WriteFile(filepath.Join(record, "output"), []byte(printed), 0o600))
}

// setting is what the host is started with.
func (l *lab) setting(h host, record string, m *model, relay map[string]string) setting {
	home, log := filepath.Join(l.dir, "home-"+filepath.Base(record)), filepath.Join(record, "relay.jsonl")
	return setting{
		home: home, work: filepath.Join(home, "work"), model: m.url, relay: relay, log: log,
		server: []string{l.self, proxyWord, log, l.binaries.Relay, "serve"},
		prompt: "Begin.", program: filepath.Join(l.modules, h.program),
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

// take returns the first call that a step made, and those after it.
func take(log []*sent, s step) (*sent, []*sent) {
	for n, call := range log {
		if call.Tool == s.Tool && reflect.DeepEqual(call.Args, s.Args) {
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
