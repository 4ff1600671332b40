package op

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"colabrelay/relay/bridge"
	"colabrelay/relay/hint"
	"colabrelay/relay/pairing"
	"colabrelay/shared/e2e/standin"
)

func TestStartingTheExecutor(t *testing.T) {
	calls := 0
	d := newTabDesk(t, standin.Options{}, Config{StartExecutor: func(ctx context.Context, tab bridge.Notebook, r bridge.Request, step func(string)) (bridge.Paired, error) {
		step("downloading the executor")
		switch calls++; {
		case tab == nil || ctx.Err() != nil || r != bridge.Request{Name: "mine", StatusCell: true}:
			return bridge.Paired{}, fmt.Errorf("tab %v, request %+v", tab, r)
		case calls == 1:
			return bridge.Paired{}, &bridge.StartingError{Step: "running a cell"}
		case calls == 2:
			return bridge.Paired{}, bridge.ErrExpired
		}
		return bridge.Paired{Runtime: pairing.Runtime{Name: "mine"}, Notes: []string{"the status cell runs"}}, nil
	}})
	start := func() (result, PageConnection) {
		t.Helper()
		r := d.ask("open_colab_browser_connection", "start_executor", true, "runtime_name", "mine", "statusCell", true)
		return r, decode[PageConnection](t, r.Structured)
	}
	r, got := start()
	if r.IsError || !got.Connected || !got.Waiting || !strings.HasPrefix(got.NextCommand, "open_colab_browser_connection(start_executor=true, ") || !strings.Contains(r.Content[0].Text, "still being started") {
		t.Errorf("%s", r.Structured)
	}
	r, _ = start()
	if p := r.outcome(t).Error; p == nil || p.Code != hint.CodeNoExecutor || !strings.Contains(p.Message, "180 s") {
		t.Errorf("%s", r.Structured)
	}
	r, got = start()
	if r.IsError || got.Executor != "mine" || got.Waiting || !strings.Contains(r.Content[0].Text, `runtime "mine"`) || !strings.Contains(r.Content[0].Text, "status cell") {
		t.Errorf("%s", r.Structured)
	}
}
