package api

import (
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"

	"colabrelay/executor/journal"
	"colabrelay/shared/contract"
)

func TestAPanicIsAnsweredSignedAndItsTextStaysInTheLog(t *testing.T) {
	s := standWith(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Leak", "half an answer")
		panic("boiler burst")
	})
	res := s.call("GET", "/x", nil)
	e := res.want(t, http.StatusInternalServerError, contract.CodeInternal)
	if strings.Contains(string(res.body), "boiler burst") {
		t.Errorf("answer contains the cause: %s", res.body)
	}
	if log := s.log.String(); !strings.Contains(log, "boiler burst") || !strings.Contains(log, e.RequestID) {
		t.Errorf("log is %s", log)
	}
}

func TestTheLogContainsNoUserInputAndNoKeys(t *testing.T) {
	s := newStand(t)
	s.api.Attach(Backend{})
	const marker = "MARKER123"
	body := []byte(`{"request_id":"` + marker + `*","code":"` + marker + `"}`)
	req := s.request("POST", contract.PathExecutions+"?q="+marker, body)
	req.Header.Set("Extra", marker)
	s.signed(req, body).want(t, http.StatusBadRequest, contract.CodeBadRequest)
	s.call("GET", "/v1/"+marker, nil)
	s.do(s.request("GET", "/"+marker, nil))
	log := s.log.String()
	if strings.Contains(log, marker) || strings.Contains(log, s.secret.Reveal()) {
		t.Fatalf("log is %s", log)
	}
	if n := len(lines(log)); n != 3 {
		t.Fatalf("%d lines for 3 requests: %s", n, log)
	}
}

func TestASubmitIsCheckedBeforeItReachesTheQueue(t *testing.T) {
	s := newStand(t)
	s.api.Attach(Backend{}) // an accepted submit would panic
	for name, tc := range map[string]struct{ body, names string }{
		"an array":         {`[]`, "request body"},
		"invalid UTF-8":    {"{\"request_id\":\"a\",\"code\":\"\xff\"}", "UTF-8"},
		"odd request_id":   {`{"request_id":"a/b","code":"1"}`, "request_id"},
		"blank code":       {`{"request_id":"a","code":" \n\t"}`, "code"},
		"code with NUL":    {`{"request_id":"a","code":"a\u0000"}`, "code"},
		"negative timeout": {`{"request_id":"a","code":"1","timeout_seconds":-1}`, "timeout_seconds"},
	} {
		t.Run(name, func(t *testing.T) {
			body := []byte(tc.body)
			e := s.signed(s.request("POST", contract.PathExecutions, body), body).
				want(t, http.StatusBadRequest, contract.CodeBadRequest)
			if !strings.Contains(e.Message, tc.names) {
				t.Errorf("message is %q, want it to name %q", e.Message, tc.names)
			}
		})
	}
}

func TestTheNumbersOfASubmitAreBounded(t *testing.T) {
	s := contract.Submit{
		RequestID: strings.Repeat("a", 128), Code: "1", TimeoutSeconds: contract.MaxTimeout.Seconds(), WaitSeconds: 50, OutputAfterSeconds: 50,
	}
	if wait, err := checkSubmit(s); err != nil || wait != contract.MaxWait {
		t.Errorf("at every bound: wait %v, %v", wait, err)
	}
	for name, over := range map[string]func(s *contract.Submit){
		"request_id":           func(s *contract.Submit) { s.RequestID += "a" },
		"timeout_seconds":      func(s *contract.Submit) { s.TimeoutSeconds = math.Nextafter(s.TimeoutSeconds, math.Inf(1)) },
		"wait_seconds":         func(s *contract.Submit) { s.WaitSeconds = math.Nextafter(s.WaitSeconds, math.Inf(1)) },
		"output_after_seconds": func(s *contract.Submit) { s.OutputAfterSeconds = math.Nextafter(s.OutputAfterSeconds, math.Inf(1)) },
	} {
		past := s
		over(&past)
		if _, err := checkSubmit(past); err == nil || !strings.HasPrefix(err.Error(), name+":") {
			t.Errorf("%s past its bound: %v", name, err)
		}
	}
}

func TestQueryNumbersAreCheckedByName(t *testing.T) {
	s := newStand(t)
	s.api.Attach(Backend{})
	for _, tc := range []struct{ path, names string }{
		{"/v1/executions/x?offset=-1", "offset"},
		{"/v1/executions/x?wait_seconds=NaN", "wait_seconds"},
		{"/v1/executions/x?behind_input=1", "behind_input"},
		{"/v1/variables/inspect", "name"},
		{"/v1/variables/inspect?name=" + strings.Repeat("a", 1001), "name"},
	} {
		e := s.call("GET", tc.path, nil).want(t, http.StatusBadRequest, contract.CodeBadRequest)
		if !strings.HasPrefix(e.Message, tc.names) {
			t.Errorf("%.60s: message is %q, want it to name %q", tc.path, e.Message, tc.names)
		}
	}
}

// At its bound a number passes this check, and the answer is about the execution.
func TestQueryNumbersAtTheirBounds(t *testing.T) {
	s := newStand(t)
	j, err := journal.Open(journal.Config{Dir: t.TempDir(), Log: s.api.Log})
	if err != nil {
		t.Fatal(err)
	}
	s.api.Attach(Backend{Journal: j})
	for at, bound := range map[string]int64{
		"/v1/executions?limit=":                     contract.MaxListExecutions,
		"/v1/executions/x?max_bytes=":               contract.MaxReadBytes,
		"/v1/executions/x?wait_seconds=":            int64(contract.MaxWait.Seconds()),
		"/v1/executions/x/blobs/1?length=":          contract.MaxBlobPart,
		"/v1/executions/x/blobs/1?offset=1&length=": contract.MaxBlobPart,
	} {
		if res := s.call("GET", at+fmt.Sprint(bound), nil); res.StatusCode != http.StatusOK && res.error(t).Code != contract.CodeNotFound {
			t.Errorf("%s%d: %d %s", at, bound, res.StatusCode, res.body)
		}
		s.call("GET", at+fmt.Sprint(bound+1), nil).want(t, http.StatusBadRequest, contract.CodeBadRequest)
	}
}

func TestInvalidIDsAreUnknown(t *testing.T) {
	s := newStand(t)
	s.api.Attach(Backend{})
	for _, path := range []string{
		"/v1/executions/..%2f..%2fetc", "/v1/executions/" + strings.Repeat("a", 65),
		"/v1/executions/x/blobs/..%2fkey", "/v1/executions/x/blobs/0", "/v1/executions/x/blobs/10001",
	} {
		s.call("GET", path, nil).want(t, http.StatusNotFound, contract.CodeNotFound)
	}
}
