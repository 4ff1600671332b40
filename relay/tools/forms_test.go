package tools

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

func TestOnlyAHostThatDeclaresFormsGetsThem(t *testing.T) {
	for declared, want := range map[string]bool{
		`{"elicitation":{}}`:          true,
		`{"elicitation":{"form":{}}}`: true,
		`{"elicitation":{"url":{}}}`:  false,
		`{"roots":{}}`:                false,
	} {
		for _, on := range []bool{true, false} {
			l := serveLines(t, New(Config{Elicit: on}), maxHeld)
			if l.stdio.forms.forCall(&callParams{}) != nil {
				t.Error("forms before initialize")
			}
			l.send(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","clientInfo":{"name":"t","version":"1"},"capabilities":%s}}`, declared)
			l.next()
			modern := &callParams{}
			modern.Meta.Version = "2026-07-28"
			if got := l.stdio.forms.forCall(&callParams{}) != nil; got != (want && on) || l.stdio.forms.forCall(modern) != nil {
				t.Errorf("%s, switched on %v: %v", declared, on, got)
			}
		}
	}
}

func TestAnswersToForms(t *testing.T) {
	l := serveLines(t, New(Config{Elicit: true}), maxHeld)
	long := strings.Repeat("é", maxTyped)
	for answer, want := range map[string]string{
		`"result":{"action":"accept","content":{"text":"Ada"}}`:                     "Ada true",
		fmt.Sprintf(`"result":{"action":"accept","content":{"text":%q}}`, long+"x"): long + "x false",
		`"result":{"action":"accept","content":{"text":7}}`:                         " false",
		`"result":{"action":"decline","content":{"text":"Ada"}}`:                    " false",
		`"error":{"code":-32603,"message":"no"}`:                                    " false",
	} {
		got := make(chan string)
		go func() {
			line, ok := l.stdio.forms.ask(context.Background(), "?")
			got <- fmt.Sprint(line, " ", ok)
		}()
		question := l.next()
		var params struct {
			Message         string
			RequestedSchema struct{ Type string }
		}
		if json.Unmarshal(question.Params, &params) != nil || question.Method != "elicitation/create" || params.Message != "?" || params.RequestedSchema.Type != "object" {
			t.Fatalf("%s %s", question.Method, question.Params)
		}
		l.send(`{"jsonrpc":"2.0","id":%q,%s}`, question.ID, answer)
		if g := <-got; g != want {
			t.Errorf("%.80s: %.80s", answer, g)
		}
	}
}

func TestOneFormAtATimeAndNoneTwice(t *testing.T) {
	f := &forms{turn: make(chan struct{}, 1)}
	first, second := promptID{"a", 1}, promptID{"a", 2}
	if !f.begin(first) || f.begin(second) {
		t.Error("two forms at once")
	}
	f.end(first, false)
	if f.begin(first) {
		t.Error("a declined prompt is shown again")
	}
	if !f.begin(second) {
		t.Fatal("the next prompt is not shown")
	}
	f.end(second, true)
}

func TestWhatAFormSaysIsPlainAndBounded(t *testing.T) {
	got := promptMessage("vm", "e1", "\x1b[2Jname?\u202e "+strings.Repeat("x", 5000))
	if !strings.HasPrefix(got, `Code on the runtime "vm" (run e1) asks for a line of input. Do not enter a password or key.`) ||
		!strings.Contains(got, "name?") || strings.ContainsAny(got, "\x1b\u202e") || len(got) > 1300 {
		t.Errorf("%d: %q", len(got), got)
	}
}
