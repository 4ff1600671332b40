package hostilevm

import (
	"math"
	"strconv"
	"strings"
	"time"

	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/fakevm"
)

// orderCases send events and pages that no log has.
var orderCases = []Case{
	pageCase("backwards", "sends the events of a run backwards", contract.StatusSucceeded, func(int64) []contract.Event {
		all := printed(100, "line\n")
		for i := range all {
			all[i].Offset = int64(len(all) - i)
		}
		return all
	}, false),
	pageCase("last-offset", "sends an event at the largest offset", contract.StatusSucceeded, func(int64) []contract.Event {
		return []contract.Event{{Type: contract.EventStream, Text: "x", Offset: math.MaxInt64, Time: at}}
	}, false),
	pageCase("huge-gap", "sends a gap that stands for the largest number of events", contract.StatusSucceeded, func(int64) []contract.Event {
		return []contract.Event{{Type: contract.EventGap, Events: math.MaxInt64, Bytes: math.MinInt64, Time: at}}
	}, false),
	pageCase("endless-pages", "sends pages of a finished run without end", contract.StatusSucceeded, func(offset int64) []contract.Event {
		return []contract.Event{{Type: contract.EventStream, Name: contract.Stdout, Text: "more\n", Offset: offset, Time: at}}
	}, true),
	pageCase("empty-pages", "sends empty pages of a finished run without end", contract.StatusFailed, func(int64) []contract.Event { return nil }, true),
	pageCase("no-status", "sends pages without a status without end", "", func(int64) []contract.Event { return nil }, true),
	pageCase("flood", "prints without end in a run that never ends", contract.StatusRunning, func(offset int64) []contract.Event {
		all := printed(20_000, "flood "+Escape+"\n")
		for i := range all {
			all[i].Offset = offset + int64(i)
		}
		return all
	}, true),
	pageCase("prompts", "asks for input without end", contract.StatusWaitingForInput, func(offset int64) []contract.Event {
		return []contract.Event{{Type: contract.EventInputRequest, Prompt: strings.Repeat("?"+Escape, 10_000), Offset: offset, Time: at}}
	}, true),
	{Name: "line-100mb", About: "prints one line of 100 MB, in pages of 3 MB", routes: func(*fakevm.VM) routes {
		page := strings.Repeat("x", 60<<10)
		return followed(contract.StatusSucceeded, func(offset int64) ([]contract.Event, bool) {
			var all []contract.Event
			for i := range int64(50) {
				all = append(all, contract.Event{Type: contract.EventStream, Name: contract.Stdout, Text: page, Offset: offset + i, Time: at})
			}
			return all, offset >= 34*50
		})
	}},
	shows("tracebacks", "raises an error with 200,000 frames", func() []contract.Event {
		return []contract.Event{{Type: contract.EventError, EName: "E" + Escape, EValue: strings.Repeat("v", 1<<20), Traceback: strings.Split(strings.Repeat("f"+Escape+"\n", 200_000), "\n")}}
	}),
	shows("carriage", "prints 2 MB of carriage returns, backspaces and moves of the cursor", func() []contract.Event {
		return many(30, contract.Event{Type: contract.EventStream, Name: contract.Stdout, Text: strings.Repeat("\r\b\x1b[9999A\x1b[9999Cx", 3000)})
	}),
	shows("kinds", "sends events of unknown types and streams, and 20,000 names of displays", func() []contract.Event {
		all := many(20_000, contract.Event{Type: "update_display_data", Data: bundle("text/plain", `"x"`)})
		for i := range all {
			all[i].DisplayID = strconv.Itoa(i)
			if i%2 == 0 {
				all[i].Type = contract.EventType("kind " + strconv.Itoa(i))
			}
		}
		return all
	}),
}

func parseTime(s string) (time.Time, error) { return time.Parse(time.RFC3339Nano, s) }

// printed returns n events that print text.
func printed(n int, text string) []contract.Event {
	return many(n, contract.Event{Type: contract.EventStream, Name: contract.Stdout, Text: text, Time: at})
}

// pageCase is a case in which every page of a run has these events. If endless, no page is the
// last one.
func pageCase(name, about string, status contract.Status, events func(offset int64) []contract.Event, endless bool) Case {
	return Case{Name: name, About: about, Slow: endless, routes: func(*fakevm.VM) routes {
		return followed(status, func(offset int64) ([]contract.Event, bool) { return events(offset), !endless })
	}}
}

// followed answers submits and reads with pages of one run.
func followed(status contract.Status, page func(offset int64) (events []contract.Event, last bool)) routes {
	answer := func(q question) fakevm.Reply {
		offset, _ := strconv.ParseInt(q.URL.Query().Get("offset"), 10, 64)
		e := finished(requestID(q))
		e.Status = status
		e.Events, e.End = page(offset)
		e.NextOffset = offset + int64(len(e.Events))
		return fakevm.Reply{Body: e}
	}
	return routes{"POST " + contract.PathExecutions: answer, "GET " + contract.PathExecution: answer, "POST " + contract.PathInterrupt: answer}
}
