package tools

import (
	"context"
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
