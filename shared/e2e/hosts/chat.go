package main

import (
	"encoding/json"
	"fmt"
	"regexp"
)

// observation begins a result in smolagents, which gives its model no other kind of message than
// the user's.
var observation = regexp.MustCompile(`^(Observation|Call id|Error)\b`)

// chat is OpenAI's API Chat Completions, which OpenCode speaks to providers of the user's.
type chat struct{}

func (chat) read(body []byte) (request, error) {
	var b struct {
		Model    string
		Stream   bool
		Tools    []struct{ Function struct{ Name string } }
		Messages []struct {
			Role       string
			Content    json.RawMessage
			ToolCallID string `json:"tool_call_id"`
			ToolCalls  []struct {
				ID       string
				Function struct{ Name string }
			} `json:"tool_calls"`
		}
	}
	if err := json.Unmarshal(body, &b); err != nil {
		return request{}, err
	}
	q := request{Model: b.Model, Stream: b.Stream}
	for _, t := range b.Tools {
		q.Tools = append(q.Tools, tool{Name: t.Function.Name})
	}
	for _, m := range b.Messages {
		for _, c := range m.ToolCalls {
			q.Items = append(q.Items, item{Kind: called, ID: c.ID, Name: c.Function.Name})
		}
		kinds := map[string]kind{"tool": result, "user": said}
		if kinds[m.Role] == "" {
			continue
		}
		texts, images, err := openAIContent(m.Content)
		if err != nil {
			return q, err
		}
		what := kinds[m.Role]
		if len(texts) > 0 && observation.MatchString(texts[0]) {
			what = result
		}
		q.Items = append(q.Items, item{Kind: what, ID: m.ToolCallID, Texts: texts, Images: images})
	}
	return q, nil
}

func (chat) write(q request, r reply) []event {
	message, finish := map[string]any{"role": "assistant", "content": r.Text}, "stop"
	if r.Call != nil {
		finish = "tool_calls"
		message = map[string]any{"role": "assistant", "content": nil, "tool_calls": []any{map[string]any{
			"index": 0, "id": r.Call.ID, "type": "function",
			"function": map[string]any{"name": r.Call.Tool.Name, "arguments": string(marshal(r.Call.Args))},
		}}}
	}
	usage := map[string]any{"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
	object := func(kind, part string, content map[string]any, finish any) map[string]any {
		return map[string]any{
			"id": fmt.Sprintf("c_%d", r.N), "object": kind, "created": 0, "model": q.Model,
			"choices": []any{map[string]any{"index": 0, part: content, "finish_reason": finish}},
		}
	}
	if !q.Stream {
		whole := object("chat.completion", "message", message, finish)
		whole["usage"] = usage
		return []event{{Data: whole}}
	}
	last := object("chat.completion.chunk", "delta", map[string]any{}, finish)
	last["usage"] = usage
	return []event{{Data: object("chat.completion.chunk", "delta", message, nil)}, {Data: last}, {Data: "[DONE]"}}
}
