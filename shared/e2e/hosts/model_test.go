package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// api is one of the APIs, as a host uses it.
type api struct {
	path string
	// tools are what the host offers, before a conversation.
	tools string
	// conversation holds a call, its answer with a text and a picture, and a message after it.
	conversation string
	call         []string // what the answer to a request without results holds
	end          string   // how an answer without a call says that it is complete
}

var apis = map[string]api{
	"Anthropic": {
		path:  "/v1/messages?beta=true",
		tools: `"tools":[{"name":"Bash"},{"name":"Read"},{"name":"mcp__colab-relay__run_code_quick"}],"messages":`,
		conversation: `[{"role":"user","content":"Begin."},
			{"role":"assistant","content":[{"type":"text","text":"I call."},{"type":"tool_use","id":"c1","name":"mcp__colab-relay__run_code_quick","input":{}}]},
			{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":[{"type":"text","text":"one \"text\""},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA"}}]},{"type":"text","text":"after it"}]}]`,
		call: []string{`"name":"mcp__colab-relay__run_code_quick"`, `"id":"toolu_call_0"`, `{\"code\":\"1 < 2\"}`, `"stop_reason":"tool_use"`},
		end:  `"stop_reason":"end_turn"`,
	},
	"Responses": {
		path:  "/v1/responses",
		tools: `"tools":[{"type":"function","name":"shell"},{"type":"function","name":"plan"},{"type":"namespace","name":"mcp__colab_relay","tools":[{"type":"function","name":"run_code_quick"}]}],"input":`,
		conversation: `[{"type":"message","role":"developer","content":[{"type":"input_text","text":"rules"}]},{"type":"message","role":"user","content":[{"type":"input_text","text":"Begin."}]},
			{"type":"function_call","call_id":"c1","name":"run_code_quick","arguments":"{}"},
			{"type":"function_call_output","call_id":"c1","output":[{"type":"input_text","text":"one \"text\""},{"type":"input_image","image_url":"data:image/png;base64,AAAA"}]},
			{"type":"message","role":"user","content":"after it"}]`,
		call: []string{`"name":"run_code_quick"`, `"namespace":"mcp__colab_relay"`, `"call_id":"call_0"`, `"{\"code\":\"1 < 2\"}"`},
		end:  `"type":"output_text"`,
	},
	"Chat": {
		path:  "/v1/chat/completions",
		tools: `"tools":[{"function":{"name":"bash"}},{"function":{"name":"read"}},{"function":{"name":"colab-relay_run_code_quick"}}],"messages":`,
		conversation: `[{"role":"system","content":"rules"},{"role":"user","content":"Begin."},
			{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"colab-relay_run_code_quick","arguments":"{}"}}]},
			{"role":"tool","tool_call_id":"c1","content":"one \"text\""},
			{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}},{"type":"text","text":"after it"}]}]`,
		call: []string{`"name":"colab-relay_run_code_quick"`, `"id":"call_0"`, `"{\"code\":\"1 < 2\"}"`, `"finish_reason":"tool_calls"`},
		end:  `"finish_reason":"stop"`,
	},
	"Gemini": {
		path:  "/v1beta/models/gemini-2.5-pro:generateContent",
		tools: `"tools":[{"functionDeclarations":[{"name":"read"},{"name":"write"},{"name":"mcp_colab-relay_run_code_quick"}]}],"contents":`,
		conversation: `[{"role":"user","parts":[{"text":"Begin."}]},
			{"role":"model","parts":[{"text":"I call."},{"functionCall":{"id":"c1","name":"mcp_colab-relay_run_code_quick","args":{}}}]},
			{"role":"user","parts":[{"functionResponse":{"id":"c1","name":"mcp_colab-relay_run_code_quick","response":{"output":"one \"text\""}}},{"inlineData":{"mimeType":"image/png","data":"AAAA"}},{"text":"after it"}]}]`,
		call: []string{`"name":"mcp_colab-relay_run_code_quick"`, `"id":"call_0"`, `"args":{"code":"1 < 2"}`},
		end:  `"text":"done"`,
	},
}

// newModel starts a model whose script has one step.
func newModel(t *testing.T) *model {
	t.Helper()
	m, err := startModel([]step{quick("1 < 2")}, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.close)
	return m
}

// post returns the answer to a request. All of it must be JSON, in the events if it is a stream.
func (m *model) post(t *testing.T, path, body string) string {
	t.Helper()
	response, err := http.Post(m.url+path, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s: %d, %v: %s", path, response.StatusCode, err, text)
	}
	if response.Header.Get("Content-Type") != "text/event-stream" {
		if !json.Valid(text) {
			t.Fatalf("no JSON: %s", text)
		}
		return string(text)
	}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok && data != "[DONE]" && !json.Valid([]byte(data)) {
			t.Errorf("an event is no JSON: %s", data)
		}
	}
	return string(text)
}

// requests returns the form without and with a stream.
func (a api) requests(conversation string) map[string][2]string {
	stream := a.path
	if strings.Contains(a.path, ":generateContent") {
		stream = strings.Replace(a.path, ":generateContent", ":streamGenerateContent?alt=sse", 1)
	}
	body := `{"model":"m",` + a.tools + conversation
	return map[string][2]string{"object": {a.path, body + "}"}, "stream": {stream, body + `,"stream":true}`}}
}

func TestEachAPIGetsTheCallsOfTheScript(t *testing.T) {
	for name, a := range apis {
		for form, r := range a.requests("[]") {
			t.Run(name+" "+form, func(t *testing.T) {
				answer := newModel(t).post(t, r[0], r[1])
				for _, want := range a.call {
					if want == `{\"code\":\"1 < 2\"}` && form == "object" {
						want = `{"code":"1 < 2"}`
					}
					if !strings.Contains(answer, want) {
						t.Errorf("the answer lacks %s: %s", want, answer)
					}
				}
			})
		}
	}
}

func TestEachAPIShowsWhatTheModelGot(t *testing.T) {
	for name, a := range apis {
		for form, r := range a.requests(a.conversation) {
			t.Run(name+" "+form, func(t *testing.T) {
				m := newModel(t)
				if answer := m.post(t, r[0], r[1]); !strings.Contains(answer, a.end) {
					t.Errorf("after the last step the answer lacks %s: %s", a.end, answer)
				}
				q, problems := m.read()
				got := exchanges(q)
				for n := range got {
					got[n].Tool = got[n].Tool[strings.Index(got[n].Tool, "run_code"):]
				}
				want := []exchange{{Tool: "run_code_quick", Texts: []string{`one "text"`, "after it"}, Images: []picture{{"image/png", "AAAA"}}}}
				if diff := cmp.Diff(want, got); diff != "" || len(problems) > 0 {
					t.Errorf("%s\n%q", diff, problems)
				}
			})
		}
	}
}
