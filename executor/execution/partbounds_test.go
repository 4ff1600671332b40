package execution

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"colabrelay/executor/comm"
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
	return &run{record: record, log: slog.New(slog.DiscardHandler), widgets: &comm.Board{}}
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

func TestAnErrorPastItsBoundIsKeptAsAPayload(t *testing.T) {
	t.Parallel()
	const half = contract.MaxErrorEvent / 2
	q := unstarted(t)
	r := unstartedIn(t, q)
	for over := range 2 {
		for name, e := range map[string]jupyter.ErrorContent{
			"the name":       {EName: strings.Repeat("e", maxErrorName+over), Traceback: []string{"name"}},
			"the text":       {EValue: strings.Repeat("v", maxErrorValue+over), Traceback: []string{"text"}},
			"the frames":     {Traceback: []string{strings.Repeat("a", half-1), strings.Repeat("b", half), strings.Repeat("c", 1+over)}},
			"the last frame": {Traceback: []string{"\x1b[31m", strings.Repeat("d", 2*half-5+over)}},
		} {
			var ev contract.Event
			r.failure(&ev, e)
			if size := len(ev.EName) + len(ev.EValue) + total(ev.Traceback); (ev.Data == nil) != (over == 0) || ev.Cut != "" || size > contract.MaxErrorEvent+maxErrorName+maxErrorValue {
				t.Errorf("%s, %d past the bound: %d bytes, cut %q, data %s", name, over, size, ev.Cut, ev.Data)
			}
			if over == 0 {
				continue
			}
			var ref contract.BlobRef
			want := colours.ReplaceAllString(strings.Join(e.Traceback, "\n"), "")
			if err := json.Unmarshal(ev.Data["text/plain"], &ref); err != nil || ref.Blob.SHA256 != fmt.Sprintf("%x", sha256.Sum256([]byte(want))) {
				t.Errorf("%s: kept as %+v, %v", name, ref, err)
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

func TestWhatTheBoundOfAMessageCutIsAGap(t *testing.T) {
	t.Parallel()
	q := unstarted(t)
	r := unstartedIn(t, q)
	for _, kind := range []string{jupyter.MsgStream, jupyter.MsgDisplayData, jupyter.MsgError} {
		r.output(&jupyter.Message{Header: jupyter.Header{MsgType: kind}, Content: []byte(`{"name":"stdout","text":"tail"}`), Cut: 7}, time.Now())
	}
	r.flush(time.Now())
	gaps := 0
	for _, e := range read(t, q.journal, r.record.ID).Events {
		if e.Type == contract.EventGap && e.Bytes >= 7 {
			gaps++
		}
	}
	if gaps != 3 {
		t.Errorf("%d gaps", gaps)
	}
}
