package client

import (
	"context"
	"strings"
	"testing"
	"time"

	"colabrelay/relay/plain"
	"colabrelay/shared/contract"
)

// answers are the structs that answers of an executor are read into.
var answers = map[string]func() any{
	"health": func() any { return new(contract.Health) }, "probe": func() any { return new(contract.Probe) },
	"kernel": func() any { return new(contract.Kernel) }, "execution": func() any { return new(contract.Execution) },
	"executions": func() any { return new(contract.ExecutionList) }, "variables": func() any { return new(contract.Variables) },
	"inspection": func() any { return new(contract.Inspection) }, "cleanup": func() any { return new(contract.Cleanup) },
	"error": func() any { return new(contract.ErrorBody) },
}

// FuzzAnswers reads any text as any answer. What was read has only plain strings, except for
// the output of the user's code, which others clean.
func FuzzAnswers(f *testing.F) {
	f.Add("kernel", []byte("{\"status\":\"idle\",\"kernel_id\":\"k\x1b[2J\",\"python\":\"3.12\\u001b]0;t\\u0007\"}"))
	f.Add("execution", []byte(`{"execution_id":"-e","status":"failed","error":{"ename":"E\u009b","traceback":["a\nb\u202e"]},"events":[{"offset":9223372036854775807}]}`))
	f.Add("executions", []byte(`{"executions":[{},{"execution_id":"e;rm -rf /","behind":{"prompt":"p\u001b[1A"}}]}`))
	f.Add("probe", []byte(`{"packages":{"a\u0000":"1"},"gpu":{"devices":[{"name":"T4\r"}]},"storage":[{}]}`))
	f.Add("variables", []byte(`{"count":-1,"variables":[{"name":"x","shape":[9223372036854775807]}]}`))
	f.Add("error", []byte(`{"error":{"code":"c\u001b","message":"m\u2066","hint":"h","request_id":"r\n"}}`))
	f.Add("cleanup", []byte(strings.Repeat("[", 20_000)))
	f.Fuzz(func(t *testing.T, name string, body []byte) {
		fresh, known := answers[name]
		if !known {
			return
		}
		into := fresh()
		if read(t.Context(), body, into) != nil {
			return
		}
		unplain := func(s string) string {
			if plain.Text(s) != s {
				t.Errorf("%s: %q is not plain", name, s)
			}
			return s
		}
		plain.Deep(into, map[string]plain.Rule{"": unplain, "Events": nil, "Path": nil})
		if e, ok := into.(*contract.Execution); ok && e.ExecutionID != "" && !validID(e.ExecutionID) {
			t.Errorf("the id %q was kept", e.ExecutionID)
		}
	})
}

// anyPages are the answers of an executor to the reads of one execution; the last one repeats.
type anyPages struct {
	left  []contract.Execution
	reads int
}

// Execution implements ExecutionReader.
func (p *anyPages) Execution(context.Context, string, int64, time.Duration, int64) (contract.Execution, error) {
	p.reads++
	e := p.left[0]
	if len(p.left) > 1 {
		p.left = p.left[1:]
	}
	return e, nil
}

// InstanceID implements ExecutionReader.
func (*anyPages) InstanceID() string { return "i" }
