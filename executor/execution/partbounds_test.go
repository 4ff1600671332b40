package execution

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"colabrelay/executor/journal"
	"colabrelay/executor/jupyter"
	"colabrelay/shared/contract"
)

// unstartedRun is a run whose record exists and which no kernel has.
func unstartedRun(t *testing.T) *run {
	t.Helper()
	return unstartedIn(t, unstarted(t))
}

func unstartedIn(t *testing.T, q *Queue) *run {
	t.Helper()
	record, err := q.journal.Create(contract.Submit{RequestID: "x", Code: "1"})
	if err != nil {
		t.Fatal(err)
	}
	return &run{record: record, log: slog.New(slog.DiscardHandler)}
}

// quoted is a JSON text of n bytes with its quotes.
func quoted(n int) json.RawMessage {
	return json.RawMessage(`"` + strings.Repeat("x", n-2) + `"`)
}

// numbered is n MIME types with a payload each.
func numbered(n int, payload json.RawMessage) map[string]json.RawMessage {
	all := map[string]json.RawMessage{}
	for i := range n {
		all[fmt.Sprintf("x/%04d", i)] = payload
	}
	return all
}

// Each part of a display is kept at its bound, and replaced or left out one past it.
func TestThePartsOfADisplayAtTheirBounds(t *testing.T) {
	t.Parallel()
	r := unstartedRun(t)
	isBlob := func(raw json.RawMessage) bool { return strings.HasPrefix(string(raw), `{"blob"`) }
	for name, c := range map[string]struct {
		display func(over int) jupyter.DisplayData
		kept    func(e contract.Event) bool
	}{
		"MIME types": {
			func(over int) jupyter.DisplayData {
				return jupyter.DisplayData{Data: numbered(maxTypes+over, quoted(3))}
			},
			func(e contract.Event) bool { return e.Cut == "" },
		},
		"the name of a MIME type": {
			func(over int) jupyter.DisplayData {
				return jupyter.DisplayData{Data: map[string]json.RawMessage{strings.Repeat("m", maxTypeName+over): quoted(3)}}
			},
			func(e contract.Event) bool { return len(e.Data) == 1 && e.Cut == "" },
		},
		"an inline payload": {
			func(over int) jupyter.DisplayData {
				return jupyter.DisplayData{Data: map[string]json.RawMessage{"x/y": quoted(contract.InlineMIMEBytes + over)}}
			},
			func(e contract.Event) bool { return !isBlob(e.Data["x/y"]) },
		},
		"all inline payloads": {
			func(over int) jupyter.DisplayData {
				data := numbered(maxInline/contract.InlineMIMEBytes, quoted(contract.InlineMIMEBytes))
				if over > 0 {
					data["x/z"] = json.RawMessage("1")
				}
				return jupyter.DisplayData{Data: data}
			},
			func(e contract.Event) bool {
				for _, raw := range e.Data {
					if isBlob(raw) {
						return false
					}
				}
				return true
			},
		},
		"metadata": {
			func(over int) jupyter.DisplayData { return jupyter.DisplayData{Metadata: quoted(maxMetadata + over)} },
			func(e contract.Event) bool { return e.Metadata != nil && e.Cut == "" },
		},
		"the display_id": {
			func(over int) (d jupyter.DisplayData) {
				d.Transient.DisplayID = strings.Repeat("d", maxDisplayID+over)
				return d
			},
			func(e contract.Event) bool { return len(e.DisplayID) == maxDisplayID && e.Cut == "" },
		},
	} {
		for over := range 2 {
			var e contract.Event
			r.display(&e, c.display(over))
			if kept := c.kept(e); kept != (over == 0) {
				t.Errorf("%s, %d past the bound: kept %v, cut %q", name, over, kept, e.Cut)
			}
			if line, err := json.Marshal(e); err != nil || len(line) > contract.MaxEventBytes {
				t.Errorf("%s: an event of %d bytes, %v", name, len(line), err)
			}
		}
	}
}

func TestAnErrorIsCutPastItsBound(t *testing.T) {
	t.Parallel()
	const part = contract.MaxErrorEvent / 4
	for over := range 2 {
		for name, bounded := range map[string]func() (contract.ExecutionError, string){
			"the name": func() (contract.ExecutionError, string) { return boundError(strings.Repeat("e", part/4+over), "", nil) },
			"the text": func() (contract.ExecutionError, string) { return boundError("", strings.Repeat("e", part+over), nil) },
			"the lines": func() (contract.ExecutionError, string) {
				return boundError("", "", []string{strings.Repeat("a", part), strings.Repeat("b", part+over)})
			},
		} {
			e, cut := bounded()
			if size := len(e.EName) + len(e.EValue) + total(e.Traceback); (cut == "") != (over == 0) || size > contract.MaxErrorEvent {
				t.Errorf("%s, %d past the bound: %d bytes, cut %q", name, over, size, cut)
			}
		}
	}
}

func TestAWaitForInputEndsAtItsBound(t *testing.T) {
	t.Parallel()
	began := time.Now()
	for past, want := range map[time.Duration]cause{-time.Nanosecond: causeNone, 0: causeInputWait} {
		r := unstartedRun(t)
		r.inputRequest, r.inputSince = new(jupyter.Message), began
		r.checkDeadlines(began.Add(contract.MaxInputWait + past))
		if r.cause != want {
			t.Errorf("%v past the bound: cause %v, want %v", past, r.cause, want)
		}
	}
}

// Text of the largest size is one event, and a byte more is another one.
func TestAStreamEventIsBounded(t *testing.T) {
	t.Parallel()
	for over := range 2 {
		q := unstarted(t)
		r := unstartedIn(t, q)
		r.joined.flushed = time.Now() // as in the midst of a flood
		text := strings.Repeat("x", contract.MaxStreamEvent+over)
		r.stream(&jupyter.Message{Content: fmt.Appendf(nil, `{"name":"stdout","text":%q}`, text)}, r.joined.flushed)
		r.flush(time.Now())
		x := read(t, q.journal, r.record.ID)
		if len(x.Events) != 1+over || len(x.Events[0].Text) != contract.MaxStreamEvent {
			t.Errorf("%d past the bound: %d events, the first of %d bytes", over, len(x.Events), len(x.Events[0].Text))
		}
	}
}

// Of a reply with more pages than are decoded, the first ones are displays, and a gap counts the rest.
func TestPagesBeyondTheBoundAreAGap(t *testing.T) {
	t.Parallel()
	const decoded, one = 100, `{"source":"page","data":{"text/plain":"p"}}`
	for _, over := range []int{0, 1, 10_000} {
		q := unstarted(t)
		r := unstartedIn(t, q)
		var reply jupyter.ExecuteReply
		raw := `{"status":"ok","payload":[` + one + strings.Repeat(","+one, decoded-1+over) + `]}`
		if err := json.Unmarshal([]byte(raw), &reply); err != nil {
			t.Fatal(err)
		}
		r.page(&reply)
		x, err := q.journal.Read(t.Context(), r.record.ID, journal.ReadRequest{MaxBytes: contract.MaxReadBytes})
		if err != nil {
			t.Fatal(err)
		}
		displays, gaps := 0, []contract.Event{}
		for _, ev := range x.Events {
			switch ev.Type {
			case contract.EventDisplayData:
				displays++
			case contract.EventGap:
				gaps = append(gaps, ev)
			}
		}
		if displays != decoded || over == 0 && len(gaps) > 0 || over > 0 && (len(gaps) != 1 || gaps[0].Events != int64(over) || gaps[0].Bytes != int64(over*len(one))) {
			t.Errorf("%d pages more: %d displays, and gaps %+v", over, displays, gaps)
		}
	}
}
