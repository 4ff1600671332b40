package kernelcall

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"colabrelay/relay/client"
	"colabrelay/shared/bounded"
	"colabrelay/shared/contract"
	"colabrelay/shared/kernelpy"
)

const mime = contract.OwnMIME + "test+json"

// vm answers each submit with the next of its answers, and remembers what it was asked.
type vm struct {
	answers     []contract.Execution
	err         error
	blob        string
	codes       []string
	interrupted []string
}

func (v *vm) Submit(_ context.Context, s contract.Submit) (contract.Execution, error) {
	v.codes = append(v.codes, s.Code)
	if v.err != nil {
		return contract.Execution{}, v.err
	}
	return v.answers[min(len(v.codes), len(v.answers))-1], nil
}

func (v *vm) Execution(ctx context.Context, id string, offset int64, wait time.Duration, maxBytes int64) (contract.Execution, error) {
	<-ctx.Done()
	return contract.Execution{}, ctx.Err()
}

func (v *vm) Interrupt(_ context.Context, id string) (contract.Execution, error) {
	v.interrupted = append(v.interrupted, id)
	return contract.Execution{}, nil
}

func (v *vm) Blob(_ context.Context, _ string, _ contract.Blob, w io.Writer) error {
	_, err := io.WriteString(w, v.blob)
	return err
}

func (v *vm) InstanceID() string { return "instance" }

// ended is an execution that displayed this data.
func ended(status contract.Status, kind, data string) contract.Execution {
	e := contract.Execution{ExecutionID: "e", Status: status, End: true}
	if data != "" {
		e.Events = []contract.Event{{Type: contract.EventDisplayData, Data: map[string]json.RawMessage{kind: json.RawMessage(data)}}}
		e.NextOffset = 1
	}
	return e
}

func missing() contract.Execution {
	return ended(contract.StatusSucceeded, contract.OwnMIME+"missing+json", `{"package":"`+kernelpy.Package()+`"}`)
}

func ask(t *testing.T, v *vm) (report string, err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		o := Options{Until: time.Now().Add(100 * time.Millisecond), Limit: time.Second, MaxReport: 20}
		var raw []byte
		raw, _, err = Ask(ctx, v, kernelpy.Call{Function: "m.f", MIME: mime}, o)
		report = string(raw)
	})
	return report, err
}

func TestReports(t *testing.T) {
	t.Parallel()
	const succeeded = contract.StatusSucceeded
	blob := `{"blob":{"number":1,"sha256":"x","bytes":`
	for name, test := range map[string]struct {
		vm    vm
		want  string
		fails error // nil if it must not
		calls int
	}{
		"at once":              {vm: vm{answers: []contract.Execution{ended(succeeded, mime, "7")}}, want: "7", calls: 1},
		"the package missing":  {vm: vm{answers: []contract.Execution{missing(), ended(succeeded, mime, "7")}}, want: "7", calls: 2},
		"missing for ever":     {vm: vm{answers: []contract.Execution{missing()}}, fails: kernelpy.ErrNotKept, calls: 2},
		"no report":            {vm: vm{answers: []contract.Execution{ended(succeeded, "", "")}}, fails: ErrNoReport, calls: 1},
		"another's report":     {vm: vm{answers: []contract.Execution{ended(succeeded, "text/plain", "7")}}, fails: ErrNoReport, calls: 1},
		"a blob":               {vm: vm{answers: []contract.Execution{ended(succeeded, mime, blob+"3}}")}, blob: "[7]"}, want: "[7]", calls: 1},
		"a blob too long":      {vm: vm{answers: []contract.Execution{ended(succeeded, mime, blob+"21}}")}}, fails: client.ErrReportTooLong, calls: 1},
		"a blob that goes on":  {vm: vm{answers: []contract.Execution{ended(succeeded, mime, blob+"3}}")}, blob: strings.Repeat("7", 21)}, fails: bounded.ErrTooLong, calls: 1},
		"the VM does not take": {vm: vm{err: io.ErrUnexpectedEOF}, fails: io.ErrUnexpectedEOF, calls: 1},
	} {
		report, err := ask(t, &test.vm)
		if report != test.want || !errors.Is(err, test.fails) || len(test.vm.codes) != test.calls || len(test.vm.interrupted) != 0 {
			t.Errorf("%s: %q, %v after %d calls", name, report, err, len(test.vm.codes))
		}
		for i, code := range test.vm.codes {
			if strings.Contains(code, `"package_loader.py":`) != (i == 1) {
				t.Errorf("%s: call %d has the package: %t", name, i, i != 1)
			}
		}
	}
}

func TestALateCallIsWithdrawn(t *testing.T) {
	t.Parallel()
	for status, want := range map[contract.Status]string{
		contract.StatusQueued:  "another run occupies the kernel; this call waited, and its place in the queue was given up",
		contract.StatusRunning: "it took longer than this call may take and was interrupted",
	} {
		v := &vm{answers: []contract.Execution{{ExecutionID: "e", Status: status}}}
		if _, err := ask(t, v); err == nil || err.Error() != want || len(v.interrupted) != 1 || v.interrupted[0] != "e" {
			t.Errorf("%s: %v, interrupted %v", status, err, v.interrupted)
		}
	}
}

// slowVM has a report that is a blob, and notes whether the events of its answer are still held
// while that is fetched.
type slowVM struct {
	vm
	event weak.Pointer[contract.Event]
	held  bool
}

func (v *slowVM) Submit(context.Context, contract.Submit) (contract.Execution, error) {
	e := ended(contract.StatusSucceeded, mime, `{"blob":{"number":1,"sha256":"x","bytes":3}}`)
	v.event = weak.Make(&e.Events[0])
	return e, nil
}

func (v *slowVM) Blob(_ context.Context, _ string, _ contract.Blob, w io.Writer) error {
	runtime.GC()
	v.held = v.event.Value() != nil
	_, err := io.WriteString(w, "[7]")
	return err
}

// An executor decides how long a fetch takes: hundreds of calls must not hold their events so long.
func TestNoEventsAreHeldWhileAReportIsFetched(t *testing.T) {
	v := &slowVM{}
	o := Options{Until: time.Now().Add(time.Minute), Limit: time.Second, MaxReport: 20}
	report, last, err := Ask(t.Context(), v, kernelpy.Call{Function: "m.f", MIME: mime}, o)
	if err != nil || string(report) != "[7]" || v.held || last.Events != nil {
		t.Errorf("%q, %v, held %v, %d events in the answer", report, err, v.held, len(last.Events))
	}
}
