package tools

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestTheHostsAnswerReachesTheOneWhoAsked(t *testing.T) {
	l := serveLines(t, withoutRuntime(), maxHeld)
	type outcome struct {
		result string
		err    error
	}
	for answer, want := range map[string]string{`"result":{"action":"accept"}`: `{"action":"accept"}`, `"error":{"code":-1,"message":"no"}`: "the host refused elicitation/create"} {
		got := make(chan outcome)
		go func() {
			result, err := l.stdio.ask(context.Background(), "elicitation/create", map[string]any{"message": "?"})
			got <- outcome{string(result), err}
		}()
		question := l.next()
		if question.Method != "elicitation/create" || string(question.Params) != `{"message":"?"}` {
			t.Errorf("%+v", question)
		}
		l.send(`{"jsonrpc":"2.0","id":"made up","result":{}}`)
		l.send(`{"jsonrpc":"2.0","id":{},"error":{"code":1,"message":"also made up"}}`)
		for range 2 {
			l.send(`{"jsonrpc":"2.0","id":%q,%s}`, question.ID, answer)
		}
		if o := <-got; !strings.Contains(o.result+fmt.Sprint(o.err), want) {
			t.Errorf("%s: %+v", answer, o)
		}
	}
	l.quiet()
}

func TestAHostIsToldThatAnAnswerIsNotNeeded(t *testing.T) {
	l := serveLines(t, withoutRuntime(), maxHeld)
	ctx, cancel := context.WithCancel(t.Context())
	got := make(chan error)
	go func() {
		_, err := l.stdio.ask(ctx, "elicitation/create", nil)
		got <- err
	}()
	id := l.next().ID
	cancel()
	if m := l.next(); m.Method != "notifications/cancelled" || string(m.Params) != fmt.Sprintf(`{"requestId":%q}`, id) {
		t.Errorf("%s %s", m.Method, m.Params)
	}
	if err := <-got; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	l.send(`{"jsonrpc":"2.0","id":%q,"result":{}}`, id)
	l.quiet()
	if n := len(l.stdio.asked.waiting); n != 0 {
		t.Errorf("%d still waited for", n)
	}
}
