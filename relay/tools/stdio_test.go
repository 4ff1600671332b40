package tools

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"colabrelay/relay/runtimes"
	"colabrelay/shared/contract"
)

// Hosts must not notice which calls the relay handles itself.
func TestCallsAreAnsweredAsTheSDKAnswers(t *testing.T) {
	r := New(Config{Resolve: func(string) (runtimes.Runtime, error) { return runtimes.Runtime{}, errors.New("no <runtime> & none") }, Hold: time.Second, Version: "1.2"})
	stdin, in := io.Pipe()
	out, stdout := io.Pipe()
	served := make(chan error)
	go func() { served <- r.Serve(context.Background(), stdin, stdout) }()
	answers := bufio.NewReader(out)
	modern := func(fields string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list_executions","_meta":{"io.modelcontextprotocol/protocolVersion":` + fields + `}}}`
	}
	for _, line := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list_executions","arguments":{}}}`,
		`{"jsonrpc":"2.0","id":"<a> \u00e9\"","method":"tools/call","params":{"name":"list_executions"}}`,
		` { "id" : -7.5 , "params" : { "arguments" : null , "name" : "list_executions" , "_meta" : { "progressToken" : null } } , "method" : "tools/call" , "jsonrpc" : "2.0" } `,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list_executions","arguments":[1]}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"run_code_quick","arguments":{"code":"` + strings.Repeat("x", 1<<20) + `"}}}`,
		modern(`"2025-06-18"`),
		modern(`"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}`),
		modern(`"2026-07-28"`),
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"no such tool"}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":5}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":`,
	} {
		want, err := json.Marshal(r.mcp.HandleMessage(t.Context(), json.RawMessage(line)))
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(in, line+"\n")
		got, err := answers.ReadBytes('\n')
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(decode[map[string]any](t, want), decode[map[string]any](t, got)); diff != "" {
			t.Errorf("%.200s: (-SDK +relay)\n%s", line, diff)
		}
	}
	in.Close()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// A host may close stdin while a call waits. Nothing may be written after Serve has returned.
// A host that reads nothing must not keep the relay alive after it has closed stdin.
func TestAHostThatReadsNoAnswersDoesNotKeepTheRelay(t *testing.T) {
	r := New(Config{Resolve: func(string) (runtimes.Runtime, error) { return runtimes.Runtime{}, errors.New("none") }, Hold: time.Second, Version: "1.2"})
	out, stdout := io.Pipe() // a write blocks until it is read
	defer out.Close()        // lets the goroutine of the write that hangs end
	calls := strings.Repeat(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`+"\n", 20)
	if err := r.Serve(t.Context(), strings.NewReader(calls), stdout); err != nil {
		t.Error(err)
	}
}

func TestTheEndOfStdinEndsCallsInProgress(t *testing.T) {
	f := newFake(t)
	rt, arrived := f.runtime(t), make(chan bool)
	f.on("POST", contract.PathExecutions, func(r *http.Request, _ []byte) (int, any) {
		arrived <- true
		<-r.Context().Done()
		return http.StatusOK, contract.Execution{}
	})
	r := New(Config{Resolve: func(string) (runtimes.Runtime, error) { return rt, nil }, Hold: time.Minute})
	stdin, in := io.Pipe()
	var stdout strings.Builder
	served := make(chan error)
	go func() { served <- r.Serve(context.Background(), stdin, &stdout) }()
	const calls = 2 * maxSpare
	for i := range calls {
		fmt.Fprintf(in, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"run_code_quick","arguments":{"code":"x"}}}`+"\n", i)
	}
	for range calls {
		<-arrived
	}
	in.Close()
	if err := <-served; err != nil {
		t.Error(err)
	}
	if n := strings.Count(stdout.String(), codeCancelled); n < calls {
		t.Errorf("%d answers say that the call was cancelled, want %d", n, calls)
	}
}
