package client

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"colabrelay/shared/contract"
	"colabrelay/shared/memory"
)

// reply is what arrives some time after its request.
type reply struct {
	contract.Execution
	after time.Duration // at most the wait asked for
}

// pages is an executor whose execution gives one page to each request.
type pages struct {
	pages    []reply
	err      error // after the last page
	instance string
	requests []string // offset, wait and size
	at       []time.Time
}

func (p *pages) InstanceID() string { return p.instance }

func (p *pages) Execution(ctx context.Context, id string, offset int64, wait time.Duration, maxBytes int64) (contract.Execution, error) {
	p.requests = append(p.requests, fmt.Sprintf("%s from %d wait %v size %d", id, offset, wait, maxBytes))
	p.at = append(p.at, time.Now())
	if len(p.pages) == 0 {
		return contract.Execution{}, p.err
	}
	next := p.pages[0]
	p.pages = p.pages[1:]
	select {
	case <-time.After(min(wait, next.after)):
		return next.Execution, nil
	case <-ctx.Done():
		return contract.Execution{}, ctx.Err()
	}
}

// printed is a reply with printed events from an offset on.
func printed(after time.Duration, status contract.Status, from int64, texts ...string) reply {
	e := reply{contract.Execution{ExecutionID: "e", Status: status, NextOffset: from + int64(len(texts))}, after}
	for i, text := range texts {
		e.Events = append(e.Events, contract.Event{Offset: from + int64(i), Type: contract.EventStream, Text: text})
	}
	return e
}

func final(e reply) reply {
	e.End = true
	return e
}

func asking(e reply) reply {
	e.Events = append(e.Events, contract.Event{Offset: e.NextOffset, Type: contract.EventInputRequest})
	e.NextOffset++
	e.Status = contract.StatusWaitingForInput
	return e
}

// visitor collects what Follow visits.
type visitor struct{ texts []string }

func (v *visitor) visit(e contract.Execution) bool {
	for _, ev := range e.Events {
		v.texts = append(v.texts, fmt.Sprintf("%d%s", ev.Offset, strings.TrimLeft(ev.Text, "_")))
	}
	return true
}

const (
	running   = contract.StatusRunning
	succeeded = contract.StatusSucceeded
)

func TestFollow(t *testing.T) {
	start := contract.Execution{ExecutionID: "e"}
	for name, test := range map[string]struct {
		first    contract.Execution
		pages    []reply
		options  FollowOptions
		until    time.Duration // from the start
		visited  []string
		requests []string
		end      bool // the end was read
	}{
		"an id alone is read from its offset to the end": {
			start, []reply{printed(time.Second, running, 3, "a"), final(printed(time.Second, succeeded, 4, "b"))},
			FollowOptions{From: 3}, 0, []string{"3a", "4b"},
			[]string{"e from 3 wait 50s size 0", "e from 4 wait 50s size 0"}, true,
		},
		"events visited before are not visited again": {
			printed(0, running, 0, "a", "b").Execution, []reply{final(printed(time.Second, succeeded, 1, "b", "c"))},
			FollowOptions{From: 1}, 0, []string{"1b", "2c"}, []string{"e from 2 wait 50s size 0"}, true,
		},
		"a gap counts for its events": {
			start, []reply{
				{contract.Execution{ExecutionID: "e", Status: running, Events: []contract.Event{{Offset: 2, Type: contract.EventGap, Events: 7}}}, 0},
				final(printed(time.Second, succeeded, 9, "a")),
			},
			FollowOptions{}, 0, []string{"2", "9a"}, []string{"e from 0 wait 50s size 0", "e from 9 wait 50s size 0"}, true,
		},
		"an offset never goes back": {
			start, []reply{printed(time.Second, running, 5, "a"), printed(time.Second, running, 0), final(printed(time.Second, succeeded, 6))},
			FollowOptions{From: 5}, 0, []string{"5a"},
			[]string{"e from 5 wait 50s size 0", "e from 6 wait 50s size 0", "e from 6 wait 50s size 0"}, true,
		},
		"a finished execution is read to its end although no time is left": {
			printed(0, succeeded, 0, "a").Execution, []reply{printed(0, succeeded, 1, "b"), final(printed(0, succeeded, 2, "c"))},
			FollowOptions{}, time.Nanosecond, []string{"0a", "1b", "2c"}, []string{"e from 1 wait 1ns size 0", "e from 2 wait 1ns size 0"}, true,
		},
		"output before an input request is read first": {
			start, []reply{printed(0, contract.StatusWaitingForInput, 0, "a"), asking(printed(0, running, 1))},
			FollowOptions{}, 0, []string{"0a", "1"}, []string{"e from 0 wait 50s size 0", "e from 1 wait 50s size 0"}, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				vm, v, o := &pages{pages: test.pages}, &visitor{}, test.options
				o.Visit = v.visit
				if test.until > 0 {
					o.Until = time.Now().Add(test.until)
				}
				got, err := Follow(t.Context(), vm, test.first, o)
				if err != nil || got.End != test.end || got.Events != nil || len(vm.pages) > 0 {
					t.Errorf("%+v, %v; %d pages were not read", got, err, len(vm.pages))
				}
				if diff := cmp.Diff(test.visited, v.texts); diff != "" {
					t.Error("visited:", diff)
				}
				if diff := cmp.Diff(test.requests, vm.requests); diff != "" {
					t.Error("requests:", diff)
				}
			})
		})
	}
}

func TestFollowReportsANewInstance(t *testing.T) {
	for name, test := range map[string]struct {
		known, answers string
		refused, want  contract.Code
	}{
		"another VM":                    {"vm-1", "vm-2", contract.CodeNotFound, contract.CodeNewInstance},
		"the same VM":                   {"vm-1", "vm-1", contract.CodeNotFound, contract.CodeNotFound},
		"another refusal":               {"vm-1", "vm-2", contract.CodeRateLimited, contract.CodeRateLimited},
		"a caller that does not ask it": {"", "vm-2", contract.CodeNotFound, contract.CodeNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			vm := &pages{instance: test.answers, err: &contract.Error{Code: test.refused}}
			_, err := Follow(t.Context(), vm, contract.Execution{ExecutionID: "e"}, FollowOptions{Instance: test.known, Visit: new(visitor).visit})
			wantCode(t, err, test.want)
		})
	}
}

// Events that others leave no room for are not held: they are read again in small pieces, and each is
// visited once.
func TestEventsWithoutRoomAreReadAgainInSmallPieces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := memory.Events.Most()
		if !memory.Events.Take(all) {
			t.Fatal("the budget is in use")
		}
		defer memory.Events.Return(all)
		big := strings.Repeat("x", 3*memory.Small)
		vm, v := &pages{pages: []reply{printed(0, contract.StatusRunning, 0, big), final(printed(0, contract.StatusSucceeded, 0, "a"))}}, &visitor{}
		_, err := Follow(t.Context(), vm, contract.Execution{ExecutionID: "e"}, FollowOptions{MaxBytes: contract.MaxReadBytes, Visit: v.visit})
		if diff := cmp.Diff([]string{"0a"}, v.texts); err != nil || diff != "" {
			t.Errorf("%v; visited: %s", err, diff)
		}
		if small := fmt.Sprint("size ", memory.Small); len(vm.requests) != 2 || !strings.HasSuffix(vm.requests[1], small) {
			t.Errorf("requests: %q", vm.requests)
		}
		if e := (&contract.Execution{Events: []contract.Event{{Text: strings.Repeat("x", 2<<20)}}}); checkAsked(e, memory.Small) == nil || checkAsked(e, 2<<20) != nil {
			t.Error("events that were not asked for are taken, or those that were are refused")
		}
	})
}

func TestBehindInput(t *testing.T) {
	for name, c := range map[string]struct {
		status contract.Status
		behind *contract.Behind
		want   string // the prompt; "-" for none
	}{
		"input":            {contract.StatusQueued, &contract.Behind{ExecutionID: "e-1", Status: contract.StatusWaitingForInput, Prompt: "name? "}, "name? "},
		"running":          {contract.StatusQueued, &contract.Behind{ExecutionID: "e-1", Status: contract.StatusRunning}, "-"},
		"id of a stranger": {contract.StatusQueued, &contract.Behind{ExecutionID: "e; rm -rf ~", Status: contract.StatusWaitingForInput}, "-"},
		"control codes":    {contract.StatusQueued, &contract.Behind{ExecutionID: "e-1", Status: contract.StatusWaitingForInput, Prompt: "\x1b[2Jname?\n\x07"}, "name?"},
	} {
		t.Run(name, func(t *testing.T) {
			e := newExecutor(t, func(seen) (int, any) {
				return http.StatusOK, contract.Execution{ExecutionID: "e", Status: c.status, Behind: c.behind}
			})
			x, err := e.acquainted(t).Execution(WithBehindInput(t.Context()), "e", 0, 0, 0)
			must(t, err)
			got := "-"
			if b := BehindInput(x); b != nil {
				got = b.Prompt
			}
			if strings.TrimSpace(got) != strings.TrimSpace(c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
			if got := e.all()[0].query; !strings.Contains(got, "behind_input=true") {
				t.Errorf("query %s", got)
			}
		})
	}
}

// prompting is an executor whose run waits at the prompt with offset 3, until it is answered. The
// same attempt again is accepted without effect.
func prompting(t *testing.T) *executor {
	var answered atomic.Value
	return newExecutor(t, func(s seen) (int, any) {
		running := contract.Execution{ExecutionID: "e", Status: contract.StatusRunning, NextOffset: 4}
		if s.method == http.MethodGet {
			return http.StatusOK, running
		}
		if old := answered.Swap(string(s.body)); old != nil && old != string(s.body) {
			answered.Store(old)
			return http.StatusConflict, refusalBody(contract.CodeConflict)
		}
		return http.StatusOK, running
	})
}

var atThree = contract.Input{Text: "x", Offset: func() *int64 { n := int64(3); return &n }()}

func TestInputWhoseAnswerIsLostIsAcceptedOnceOrNotReportedAsAccepted(t *testing.T) {
	for _, alone := range []bool{true, false} {
		e := prompting(t)
		client := e.acquainted(t)
		if !alone { // somebody else has answered
			if _, err := client.Input(t.Context(), "e", contract.Input{Text: "y", Offset: atThree.Offset}); err != nil {
				t.Fatal(err)
			}
		}
		e.setAfter(first(func(w http.ResponseWriter) bool { hangUp(w); return true }))
		x, err := client.Input(t.Context(), "e", atThree)
		if accepted := err == nil && x.Status == contract.StatusRunning; accepted != alone {
			t.Errorf("accepted: %v, want %v; %v", accepted, alone, err)
		}
		if !alone {
			wantKind(t, err, KindTimeout)
		}
	}
}
