package api

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	"colabrelay/executor/journal"
	"colabrelay/shared/contract"
)

func TestHealthIsOpenAndHasSixFields(t *testing.T) {
	s := newStand(t)
	res := s.do(s.request("GET", contract.PathHealth, nil))
	var fields map[string]any
	if err := json.Unmarshal(res.body, &fields); err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("answer is %d %s: %v", res.StatusCode, res.body, err)
	}
	for _, name := range []string{"status", "uptime_minutes", "memory_available_gb", "memory_used_pct", "version", "protocol"} {
		if _, ok := fields[name]; !ok {
			t.Errorf("%s is missing", name)
		}
		delete(fields, name)
	}
	if len(fields) != 0 {
		t.Errorf("health leaks %v", fields)
	}
	if res := s.do(s.request("HEAD", contract.PathHealth, nil)); res.StatusCode != http.StatusOK || len(res.body) != 0 {
		t.Errorf("HEAD gets %d with %d bytes", res.StatusCode, len(res.body))
	}
}

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
	var line map[string]any
	if err := json.Unmarshal([]byte(lines(log)[0]), &line); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"component", "request_id", "dur", "status", "bytes", "route", "method"} {
		if _, ok := line[key]; !ok {
			t.Errorf("log line lacks %s: %v", key, line)
		}
	}
}

func TestASubmitIsCheckedBeforeItReachesTheQueue(t *testing.T) {
	s := newStand(t)
	s.api.Attach(Backend{}) // an accepted submit would panic
	for name, tc := range map[string]struct{ body, names string }{
		"no body":              {``, "empty"},
		"no JSON":              {`{`, "JSON"},
		"an array":             {`[]`, "request body"},
		"two values":           {`{} {}`, "more than one"},
		"invalid UTF-8":        {"{\"request_id\":\"a\",\"code\":\"\xff\"}", "UTF-8"},
		"no request_id":        {`{"code":"1"}`, "request_id"},
		"odd request_id":       {`{"request_id":"a/b","code":"1"}`, "request_id"},
		"long request_id":      {`{"request_id":"` + strings.Repeat("a", 129) + `","code":"1"}`, "request_id"},
		"no code":              {`{"request_id":"a"}`, "code"},
		"blank code":           {`{"request_id":"a","code":" \n\t"}`, "code"},
		"code with NUL":        {`{"request_id":"a","code":"a\u0000"}`, "code"},
		"code of another type": {`{"request_id":"a","code":1}`, "code"},
		"timeout over 24 h":    {`{"request_id":"a","code":"1","timeout_seconds":86401}`, "timeout_seconds"},
		"negative timeout":     {`{"request_id":"a","code":"1","timeout_seconds":-1}`, "timeout_seconds"},
		"timeout as text":      {`{"request_id":"a","code":"1","timeout_seconds":"9"}`, "timeout_seconds"},
		"behind input, number": {`{"request_id":"a","code":"1","behind_input":1}`, "behind_input"},
		"wait over 50 s":       {`{"request_id":"a","code":"1","wait_seconds":50.1}`, "wait_seconds"},
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

func TestSubmitDefaultsAndBounds(t *testing.T) {
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
	s = contract.Submit{RequestID: "a", Code: "1"}
	if wait, err := checkSubmit(s); err != nil || wait != 0 {
		t.Errorf("defaults: wait %v, %v", wait, err)
	}
}

func TestQueryNumbersAreCheckedByName(t *testing.T) {
	s := newStand(t)
	s.api.Attach(Backend{})
	for _, tc := range []struct{ path, names string }{
		{"/v1/executions/x?offset=-1", "offset"},
		{"/v1/executions/x?offset=one", "offset"},
		{"/v1/executions/x?offset=9223372036854775808", "offset"},
		{"/v1/executions/x?max_bytes=0", "max_bytes"},
		{"/v1/executions/x?max_bytes=4194305", "max_bytes"},
		{"/v1/executions/x?wait_seconds=51", "wait_seconds"},
		{"/v1/executions/x?wait_seconds=-0.1", "wait_seconds"},
		{"/v1/executions/x?wait_seconds=NaN", "wait_seconds"},
		{"/v1/executions/x?wait_seconds=soon", "wait_seconds"},
		{"/v1/executions/x?behind_input=1", "behind_input"},
		{"/v1/executions?limit=0", "limit"},
		{"/v1/executions?limit=1001", "limit"},
		{"/v1/executions/x/blobs/1?offset=-1", "offset"},
		{"/v1/executions/x/blobs/1?length=8388609", "length"},
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
		"/v1/executions/..%2f..%2fetc", "/v1/executions/a.b", "/v1/executions/" + strings.Repeat("a", 65),
		"/v1/executions/x/blobs/..%2fkey", "/v1/executions/x/blobs/" + strings.Repeat("a", 64),
		"/v1/executions/x/blobs/0", "/v1/executions/x/blobs/-1", "/v1/executions/x/blobs/+1", "/v1/executions/x/blobs/01",
		"/v1/executions/x/blobs/1.0", "/v1/executions/x/blobs/10001", "/v1/executions/x/blobs/" + strings.Repeat("9", 20),
	} {
		s.call("GET", path, nil).want(t, http.StatusNotFound, contract.CodeNotFound)
	}
}

func TestInputBodies(t *testing.T) {
	for body, want := range map[string]string{
		`{"text":"a"}`:                               "",
		`{"text":"a","offset":0}`:                    "",
		`{"text":"a","offset":9223372036854775807}`:  "",
		`{"text":"a","offset":null,"password":true}`: "",
		`{"text":"a","offset":-1}`:                   "offset: must not be negative",
		`{"text":"a","offset":9223372036854775808}`:  "offset: a number",
		`{"text":"a","offset":1.5}`:                  "offset: a number",
		`{"text":"a","offset":"1"}`:                  "offset: a string",
		`{"text":"a","offset":1,"password":1}`:       "password: a number",
		`{"text":1}`:                                 "text: a number",
		`{"text":"a"} {"text":"b"}`:                  "more than one",
		"{\"text\":\"\xff\"}":                        "UTF-8",
	} {
		in, err := readInput([]byte(body))
		switch {
		case want == "" && (err != nil || in.Text != "a"):
			t.Errorf("%s: %+v, %v", body, in, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %q", body, err, want)
		}
	}
}

func FuzzDecodeInput(f *testing.F) {
	f.Add([]byte(`{"text":"a","offset":3,"password":true}`))
	f.Add([]byte(`{"text":"a","offset":-0}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		in, err := readInput(body)
		if err == nil && (in.Offset != nil && *in.Offset < 0 || !utf8.ValidString(in.Text)) {
			t.Fatalf("let through: %+v", in)
		}
	})
}

func FuzzDecodeSubmit(f *testing.F) {
	f.Add([]byte(`{"request_id":"a","code":"1","timeout_seconds":1,"wait_seconds":1}`))
	f.Add([]byte(`{"request_id":"a","code":"1","wait_seconds":1e400}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		var s contract.Submit
		if err := decodeBytes(body, &s); err != nil {
			return
		}
		wait, err := checkSubmit(s)
		if err == nil && (wait < 0 || wait > contract.MaxWait || s.TimeoutSeconds < 0 || s.TimeoutSeconds > contract.MaxTimeout.Seconds()) {
			t.Fatalf("let through: wait %v, timeout %v", wait, s.TimeoutSeconds)
		}
	})
}
