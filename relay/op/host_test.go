package op

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"colabrelay/relay/runtimes"
	"colabrelay/relay/toolsets"
	"colabrelay/shared/within"
)

// host calls tools as relay/mcp does. It checks what every host relies on: each result has a text
// and its fields.
type host struct {
	t     *testing.T
	relay *Relay
	name  string
	calls sync.WaitGroup
}

// result is what a model gets of an answer.
type result struct {
	IsError    bool
	Structured json.RawMessage
	Content    []content
	bytes      int // of texts and fields
}

type content struct{ Type, Text, MimeType string }

func (r result) outcome(t *testing.T) Outcome { return decode[Outcome](t, r.Structured) }
func (r result) run(t *testing.T) Run         { return decode[Run](t, r.Structured) }

func decode[T any](t *testing.T, raw json.RawMessage) (v T) {
	t.Helper()
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	return v
}

func startHost(t *testing.T, cfg Config) *host {
	t.Helper()
	if cfg.Hold == 0 {
		cfg.Hold = time.Minute // less than a host waits for an answer
	}
	cfg.Structured = true
	h := &host{t: t, relay: New(cfg), name: "test"}
	t.Cleanup(h.calls.Wait)
	return h
}

// pending is a call in progress.
type pending struct {
	result    chan *result // nil if the call did not begin
	end       func()       // ends it without a cancellation, as the end of stdin does
	cancelled atomic.Bool
}

// cancel cancels the call and waits for its end.
func (p *pending) cancel() {
	p.cancelled.Store(true)
	p.end()
	<-p.result
}

// begin begins a call of a tool. progress may be nil.
func (h *host) begin(name string, args any, progress func(Progress)) *pending {
	ctx, end := context.WithCancel(context.Background())
	p := &pending{result: make(chan *result, 1), end: end}
	q := Request{Tool: name, Arguments: encode(args), Host: h.name, Arrived: time.Now(), Progress: progress, Cancelled: p.cancelled.Load}
	h.calls.Go(func() {
		defer end()
		var got *result
		h.relay.Call(ctx, q, func(r Result) {
			got = &result{IsError: r.IsError, Structured: r.Structured, Content: []content{{Type: "text", Text: r.Text}}, bytes: len(r.Structured) + jsonLen(r.Text)}
			for _, p := range r.Pictures {
				got.Content = append(got.Content, content{Type: "image", MimeType: p.MIMEType})
			}
		})
		p.result <- got
	})
	return p
}

// call calls a tool and checks its result.
func (h *host) call(name string, args any) result {
	h.t.Helper()
	return h.await(name, h.begin(name, args, nil))
}

func (h *host) await(name string, p *pending) result {
	h.t.Helper()
	r := *within.Receive(h.t, "an answer", p.result)
	o := r.outcome(h.t)
	picture := len(r.Content) > 1
	if o.Success != (o.Error == nil) || r.IsError != (o.Error != nil && !picture) {
		h.t.Errorf("%s: success %v, isError %v, error %v", name, o.Success, r.IsError, o.Error)
	}
	if e := o.Error; e != nil && (e.Code == "" || e.Message == "" || e.Hint == "") {
		h.t.Errorf("%s: error without code, message or hint: %+v", name, e)
	}
	if r.Content[0].Text == "" {
		h.t.Errorf("%s: no text", name)
	}
	return r
}

// serveFake is a host, a relay and a fake executor behind it.
func serveFake(t *testing.T) (*host, *fakeExecutor) {
	t.Helper()
	f := newFake(t)
	rt := f.runtime(t)
	h := startHost(t, Config{
		Resolve: func(string) (runtimes.Runtime, error) { return rt, nil },
		SaveDir: t.TempDir(), CheckpointDir: t.TempDir(), Version: "test", Toolsets: toolsets.All, Notebooks: sampleRoots(t),
	})
	return h, f
}

// onOwnClock is serveFake on a clock of the test's, for calls that take all of the hold: it
// stands still while the relay works, so that the machine's speed changes nothing.
func onOwnClock(t *testing.T, hold time.Duration, test func(t *testing.T, h *host, f *fakeExecutor)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := unserved()
		rt := directly(t, f.secret, f)
		h := startHost(t, Config{
			Resolve: func(string) (runtimes.Runtime, error) { return rt, nil },
			SaveDir: t.TempDir(), CheckpointDir: t.TempDir(), Hold: hold, Version: "test", Toolsets: toolsets.All, Notebooks: sampleRoots(t),
		})
		test(t, h, f)
	})
}

// sameFields compares the named fields of two structs.
func sameFields[T any](t *testing.T, want, got T, names ...string) {
	t.Helper()
	others := cmp.FilterPath(func(p cmp.Path) bool {
		field, ok := p.Index(1).(cmp.StructField)
		return ok && !slices.Contains(names, field.Name())
	}, cmp.Ignore())
	if diff := cmp.Diff(want, got, others); diff != "" {
		t.Error(diff)
	}
}
