package client

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"colabrelay/shared/contract"
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
	big := strings.Repeat("_", 600<<10)
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
		"a first answer with the end needs no request": {
			final(printed(0, succeeded, 0, "a")).Execution, nil, FollowOptions{}, 0, []string{"0a"}, nil, true,
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
		"it returns when its time is over": {
			printed(0, running, 0).Execution, []reply{printed(time.Second, running, 0, "a"), printed(time.Minute, running, 1)},
			FollowOptions{}, 3 * time.Second, []string{"0a"}, []string{"e from 0 wait 3s size 0", "e from 1 wait 2s size 0"}, false,
		},
		"a wait too short is not worth a request": {
			printed(0, running, 0).Execution, nil, FollowOptions{}, 200 * time.Millisecond, nil, nil, false,
		},
		"an id alone is read once although no time is left": {
			start, []reply{printed(time.Second, running, 0)}, FollowOptions{}, time.Nanosecond, nil, []string{"e from 0 wait 1ns size 0"}, false,
		},
		"a finished execution is read to its end although no time is left": {
			printed(0, succeeded, 0, "a").Execution, []reply{printed(0, succeeded, 1, "b"), final(printed(0, succeeded, 2, "c"))},
			FollowOptions{}, time.Nanosecond, []string{"0a", "1b", "2c"}, []string{"e from 1 wait 1ns size 0", "e from 2 wait 1ns size 0"}, true,
		},
		"it stops at an input request": {
			start, []reply{asking(printed(time.Second, running, 0, "a"))},
			FollowOptions{}, 0, []string{"0a", "1"}, []string{"e from 0 wait 50s size 0"}, false,
		},
		"output before an input request is read first": {
			start, []reply{printed(0, contract.StatusWaitingForInput, 0, "a"), asking(printed(0, running, 1))},
			FollowOptions{}, 0, []string{"0a", "1"}, []string{"e from 0 wait 50s size 0", "e from 1 wait 50s size 0"}, false,
		},
		"it stops when a request for input was visited before": {
			printed(0, contract.StatusWaitingForInput, 4).Execution, nil, FollowOptions{From: 4}, 0, nil, nil, false,
		},
		"what is available is read without waiting": {
			printed(0, running, 0, big).Execution, []reply{printed(0, running, 1, big), printed(0, running, 2, "a")},
			FollowOptions{Available: true, MaxBytes: 1 << 20}, 0, []string{"0", "1", "2a"},
			[]string{"e from 1 wait 0s size 1048576", "e from 2 wait 0s size 1048576"}, false,
		},
		"sizes double up to the bound": {
			printed(0, succeeded, 0, "a").Execution, []reply{printed(0, succeeded, 1, "b"), printed(0, succeeded, 2, "c"), final(printed(0, succeeded, 3, "d"))},
			FollowOptions{FirstBytes: 100, MaxBytes: 300}, 0, []string{"0a", "1b", "2c", "3d"},
			[]string{"e from 1 wait 50s size 200", "e from 2 wait 50s size 300", "e from 3 wait 50s size 300"}, true,
		},
		"a caller skips events": {
			start, []reply{final(printed(0, succeeded, 40, "a"))},
			FollowOptions{Next: func() int64 { return 40 }}, 0, []string{"40a"}, []string{"e from 40 wait 50s size 0"}, true,
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

func TestFollowSpacesOutAnExecutionThatPrintsAllTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		vm := &pages{err: errors.New("the test is over")}
		for i := range int64(400) {
			vm.pages = append(vm.pages, printed(time.Millisecond, running, i, "x"))
		}
		start := time.Now()
		_, err := Follow(t.Context(), vm, contract.Execution{ExecutionID: "e"}, FollowOptions{Visit: new(visitor).visit})
		if took := time.Since(start); err != vm.err || took < 9*time.Minute || took > 14*time.Minute {
			t.Errorf("400 answers took %v: %v", took, err)
		}
		if last := vm.at[400].Sub(vm.at[399]); last > maxSpacing+time.Second {
			t.Errorf("%v between two requests", last)
		}
	})
}

func TestFollowDoesNotSpaceOut(t *testing.T) {
	big := strings.Repeat("_", 600<<10)
	for name, answers := range map[string][]reply{
		"slow answers":        {printed(time.Second, running, 0, "a"), printed(time.Second, running, 1, "b"), printed(time.Second, running, 2, "c")},
		"full answers":        {printed(0, running, 0, big), printed(0, running, 1, big), printed(0, running, 2, big)},
		"finished executions": {printed(0, succeeded, 0, "a"), printed(0, succeeded, 1, "b"), printed(0, succeeded, 2, "c")},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				vm := &pages{pages: append([]reply{printed(5*time.Second, running, 0)}, answers...), err: errors.New("the test is over")}
				start := time.Now()
				_, err := Follow(t.Context(), vm, contract.Execution{ExecutionID: "e"}, FollowOptions{Visit: new(visitor).visit})
				if took, want := time.Since(start), 5*time.Second+3*answers[0].after; err != vm.err || took != want {
					t.Errorf("took %v, want %v: %v", took, want, err)
				}
			})
		})
	}
}

func TestFollowUsesTheCallersSpacing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		vm := &pages{pages: []reply{printed(time.Second, running, 0), final(printed(time.Second, succeeded, 0))}}
		start := time.Now()
		_, err := Follow(t.Context(), vm, printed(0, running, 0).Execution, FollowOptions{
			Visit: new(visitor).visit, Spacing: func() time.Duration { return 10 * time.Second },
		})
		if took := time.Since(start); err != nil || took != 22*time.Second {
			t.Errorf("took %v: %v", took, err)
		}
	})
}

func TestFollowEndsWithItsContext(t *testing.T) {
	for name, first := range map[string]contract.Execution{
		"in a request":             {ExecutionID: "e"},
		"between two requests":     printed(0, running, 0).Execution,
		"in a wait without a time": {ExecutionID: "e", Status: contract.StatusQueued},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				vm := &pages{pages: []reply{printed(time.Minute, running, 0)}}
				_, err := Follow(ctx, vm, first, FollowOptions{Visit: new(visitor).visit, Spacing: func() time.Duration { return 10 * time.Second }})
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
			})
		})
	}
}

func TestFollowStopsWhenTheCallerSaysSo(t *testing.T) {
	vm := &pages{}
	visits := 0
	got, err := Follow(t.Context(), vm, printed(0, running, 0, "a").Execution, FollowOptions{Visit: func(contract.Execution) bool { visits++; return false }})
	if err != nil || visits != 1 || len(vm.requests) > 0 || got.NextOffset != 1 {
		t.Errorf("%d visits, requests %v, %+v: %v", visits, vm.requests, got, err)
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
