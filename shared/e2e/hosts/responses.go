package main

import (
	"encoding/json"
	"fmt"
	"strings"
)

// responses is OpenAI's API Responses, which Codex speaks.
type responses struct{}

// responsesTool is a tool, or a namespace with tools.
type responsesTool struct {
	Type  string
	Name  string
	Tools []responsesTool
}

// names returns how a call names the tool, or those of the namespace.
func (t responsesTool) names() []tool {
	if t.Type != "namespace" {
		return []tool{{Name: t.Name}}
	}
	var all []tool
	for _, inner := range t.Tools {
		all = append(all, tool{inner.Name, t.Name})
	}
	return all
}

type responsesItem struct {
	Type    string
	Role    string
	Name    string
	CallID  string `json:"call_id"`
	Content json.RawMessage
	Output  json.RawMessage
	Tools   []responsesTool // of a search
}

func (responses) read(body []byte) (request, error) {
	var b struct {
		Model  string
		Stream bool
		Tools  []responsesTool
		Input  []responsesItem
	}
	if err := json.Unmarshal(body, &b); err != nil {
		return request{}, err
	}
	q := request{Model: b.Model, Stream: b.Stream}
	for _, t := range b.Tools {
		if t.Type == "tool_search" {
			q.Search = t.Type
		}
		q.Tools = append(q.Tools, t.names()...)
	}
	for _, in := range b.Input {
		for _, t := range in.Tools {
			q.Tools = append(q.Tools, t.names()...)
		}
		i, shown := item{ID: in.CallID, Name: in.Name}, in.Output
		switch {
		case in.Type == "tool_search_call":
			i.Kind, i.Name = called, q.Search
		case in.Type == "tool_search_output":
			i.Kind = result
		case strings.HasSuffix(in.Type, "_call"):
			i.Kind = called
		case strings.HasSuffix(in.Type, "_output"):
			i.Kind = result
		case in.Role == "user":
			i.Kind, shown = said, in.Content
		default:
			continue
		}
		var err error
		if i.Texts, i.Images, err = openAIContent(shown); err != nil {
			return q, err
		}
		q.Items = append(q.Items, i)
	}
	return q, nil
}

// openAIContent reads the content of a message or a result, in either API of OpenAI.
func openAIContent(raw json.RawMessage) (texts []string, images []picture, err error) {
	all, err := parts(raw)
	for _, raw := range all {
		var part struct {
			Type     string
			Text     string
			ImageURL json.RawMessage `json:"image_url"`
		}
		if err := json.Unmarshal(raw, &part); err != nil {
			return texts, images, err
		}
		switch part.Type {
		case "text", "input_text", "output_text":
			texts = append(texts, part.Text)
		case "input_image", "image_url":
			var url string
			if json.Unmarshal(part.ImageURL, &url) != nil {
				var in struct{ URL string }
				_ = json.Unmarshal(part.ImageURL, &in) // an image without a URL shows nothing
				url = in.URL
			}
			head, data, _ := strings.Cut(url, ";base64,")
			images = append(images, picture{strings.TrimPrefix(head, "data:"), data})
		default:
			texts = append(texts, string(raw)) // the model reads what it is
		}
	}
	return texts, images, err
}

func (responses) write(q request, r reply) []event {
	out := map[string]any{"id": fmt.Sprintf("item_%d", r.N), "status": "completed"}
	switch {
	case r.Call == nil:
		out["type"], out["role"] = "message", "assistant"
		out["content"] = []any{map[string]any{"type": "output_text", "text": r.Text, "annotations": []any{}}}
	case r.Call.Search:
		out["type"], out["call_id"], out["execution"] = "tool_search_call", r.Call.ID, "client"
		out["arguments"] = map[string]any{"query": r.Call.Args["query"], "limit": 8}
	default:
		out["type"], out["call_id"], out["name"] = "function_call", r.Call.ID, r.Call.Tool.Name
		out["arguments"] = string(marshal(r.Call.Args))
		if r.Call.Tool.Namespace != "" {
			out["namespace"] = r.Call.Tool.Namespace
		}
	}
	response := func(status string, output ...any) map[string]any {
		return map[string]any{
			"id": fmt.Sprintf("resp_%d", r.N), "object": "response", "created_at": 0, "status": status, "model": q.Model, "output": append([]any{}, output...),
			"usage": map[string]any{
				"input_tokens": 10, "output_tokens": 5, "total_tokens": 15,
				"input_tokens_details": map[string]any{"cached_tokens": 0}, "output_tokens_details": map[string]any{"reasoning_tokens": 0},
			},
		}
	}
	if !q.Stream {
		return []event{{Data: response("completed", out)}}
	}
	var events []event
	for n, e := range []map[string]any{
		{"type": "response.created", "response": response("in_progress")},
		{"type": "response.output_item.added", "output_index": 0, "item": out},
		{"type": "response.output_item.done", "output_index": 0, "item": out},
		{"type": "response.completed", "response": response("completed", out)},
	} {
		e["sequence_number"] = n
		events = append(events, event{e["type"].(string), e})
	}
	return events
}
