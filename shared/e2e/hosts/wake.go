package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// wakeLimit bounds the time of the part, whose run takes 140 s.
const wakeLimit = 6 * time.Minute

// wakeScript starts a run and waits for its end with a call of its own, as the relay's hint says.
// The wait lasts over the 120 s after which Claude Code moves a call to the background.
var wakeScript = []step{
	{Tool: "run_code_long", Args: map[string]any{"code": "import time\nfor i in range(14):\n    time.sleep(10)\n    print('tick', i, flush=True)\n" + plot}},
	{Tool: "get_execution", Args: map[string]any{"execution_id": lastExecution, "wait_seconds": 600}},
}

// longRun is what the model must get at the end of the run.
var longRun = trial{begins: "Status: succeeded", says: []string{"tick 13"}}

// wake lets the model of an interactive Claude Code call a long run. The host must let the model
// go on meanwhile, and start it again with the answer, though nobody types.
func (l *lab) wake(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, wakeLimit)
	defer cancel()
	claudeCode := hosts[0]
	title, err := claudeCode.version(l.modules)
	if err != nil {
		return err
	}
	relay, stop, err := l.vm(ctx, wakePart)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	record, err := l.recordOf(wakePart)
	if err != nil {
		return err
	}
	m, err := startModel(wakeScript, record)
	if err != nil {
		return err
	}
	defer m.close()
	relay["RELAY_HOLD"] = "1s" // of the first call
	s := l.setting(claudeCode, record, m, relay)
	screen, err := startIdle(ctx, s)
	if err != nil {
		return err
	}
	err = l.watchIdle(ctx, m, title+", interactive", s)
	drawn := screen.close()
	if err != nil {
		err = fmt.Errorf("%w\nthe host drew: %q", err, tail(drawn))
	}
	return errors.Join(err, os.WriteFile(filepath.Join(record, "screen"), []byte(drawn), 0o600))
}

// startIdle starts the interactive host, with answers to all that it would ask a new user.
func startIdle(ctx context.Context, s setting) (*terminal, error) {
	args, env, err := claudeBase(s)
	if err != nil {
		return nil, err
	}
	err = writeFile(filepath.Join(s.home, ".claude.json"), marshal(map[string]any{
		"hasCompletedOnboarding": true, "theme": "dark", "customApiKeyResponses": map[string]any{"approved": []string{claudeKey}, "rejected": []string{}},
		"projects": map[string]any{s.work: map[string]any{"hasTrustDialogAccepted": true, "hasCompletedProjectOnboarding": true}},
	}))
	if err != nil {
		return nil, err
	}
	cmd, err := s.command(ctx, append([]string{s.prompt}, args...), env)
	if err != nil {
		return nil, err
	}
	return startInTerminal(cmd)
}

// watchIdle makes the checks.
func (l *lab) watchIdle(ctx context.Context, m *model, title string, s setting) error {
	first, err := m.await(ctx, func(q request) bool { return len(exchanges(q)) == len(wakeScript) })
	if err != nil {
		return fmt.Errorf("the model got no answers to its calls: %w", err)
	}
	sent, err := lastSent(s.log)
	if err != nil {
		return err
	}
	if sent.Answered {
		err = fmt.Errorf("the model waited until the relay answered: %s", short(strings.Join(sent.Texts, "\n")))
	}
	l.report.check(title, "the model goes on while it waits for a run of 140 s", err)
	last, err := m.await(ctx, func(q request) bool {
		sent, err := lastSent(s.log)
		return err == nil && sent.Answered && len(q.Items) > len(first.Items)
	})
	if err != nil {
		return fmt.Errorf("nothing woke the model: %w", err)
	}
	if sent, err = lastSent(s.log); err != nil {
		return err
	}
	l.report.check(title, "the end of the run wakes the model", checkWake(exchanges(last)[len(wakeScript)-1], sent, s.home))
	return nil
}

// checkWake compares what woke the model with what the relay sent. The host writes the text as
// XML, saves the picture, and names its file.
func checkWake(got exchange, sent *sent, home string) error {
	text := strings.Join(got.Texts, "\n")
	if len(sent.Texts) == 0 || len(sent.Images) != 1 {
		return fmt.Errorf("the relay sent %q and %d pictures", sent.Texts, len(sent.Images))
	}
	problems := append(arrival(text, sent, inXML, 1), longRun.wants(text, sent)...)
	picture, _ := base64.StdEncoding.DecodeString(sent.Images[0].Data) // what is none matches no file
	for _, path := range savedPicture.FindAllString(text, -1) {
		if saved, err := os.ReadFile(path); err == nil && strings.HasPrefix(path, home) && bytes.Equal(saved, picture) {
			return errors.Join(problems...)
		}
	}
	return errors.Join(append(problems, fmt.Errorf("no file that the text names is the relay's picture: %s", short(text)))...)
}

// savedPicture is the path of a picture.
var savedPicture = regexp.MustCompile(`/[^\s\]]+\.png`)

// lastSent returns the last call that reached the relay.
func lastSent(log string) (*sent, error) {
	all, err := readLog(log)
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, errors.New("the host did not call the relay")
	}
	return all[len(all)-1], nil
}
