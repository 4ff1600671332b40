package main

import (
	"encoding/json"
	"fmt"
)

// anthropic is the API Messages, which Claude Code speaks.
type anthropic struct{}

// anthropicBlock is a part of a message or of a tool's result.
type anthropicBlock struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	ToolUseID string          `json:"tool_use_id"`
	Content   json.RawMessage `json:"content"`
	Source    struct {
		MediaType string `json:"media_type"`
		Data      string `json:"data"`
	} `json:"source"`
}

func (anthropic) read(body []byte) (request, error) {
	var b struct {
		Model    string
		Stream   bool
		Tools    []struct{ Name string }
		Messages []struct {
			Role    string
			Content json.RawMessage
		}
	}
	if err := json.Unmarshal(body, &b); err != nil {
		return request{}, err
	}
	q := request{Model: b.Model, Stream: b.Stream}
	for _, t := range b.Tools {
		q.Tools = append(q.Tools, tool{Name: t.Name})
		if t.Name == "ToolSearch" {
			q.Search = t.Name
		}
	}
	for _, m := range b.Messages {
		all, err := parts(m.Content)
		if err != nil {
			return q, err
		}
		for _, raw := range all {
			var block anthropicBlock
			if err := json.Unmarshal(raw, &block); err != nil {
				return q, err
			}
			i, err := block.item(raw)
			if err != nil {
				return q, err
			}
			if m.Role == "user" || i.Kind == called {
				q.Items = append(q.Items, i)
			}
		}
	}
	return q, nil
}

func (b anthropicBlock) item(raw json.RawMessage) (item, error) {
	switch b.Type {
	case "tool_use":
		return item{Kind: called, ID: b.ID, Name: b.Name}, nil
	case "text":
		return item{Kind: said, Texts: []string{b.Text}}, nil
	case "image":
		return item{Kind: said, Images: []picture{{b.Source.MediaType, b.Source.Data}}}, nil
	case "tool_result":
		i := item{Kind: result, ID: b.ToolUseID}
		all, err := parts(b.Content)
		for _, raw := range all {
			var inner anthropicBlock
			if err := json.Unmarshal(raw, &inner); err != nil {
				return i, err
			}
			shown, err := inner.item(raw)
			if err != nil {
				return i, err
			}
			i.Texts, i.Images = append(i.Texts, shown.Texts...), append(i.Images, shown.Images...)
		}
		return i, err
	}
	return item{Kind: said, Texts: []string{string(raw)}}, nil // the model reads what it is
}

// parts returns the elements of a list, or a text as a list of one block of text.
func parts(raw json.RawMessage) ([]json.RawMessage, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	if raw[0] == '"' {
		return []json.RawMessage{json.RawMessage(`{"type":"text","text":` + string(raw) + `}`)}, nil
	}
	var all []json.RawMessage
	return all, json.Unmarshal(raw, &all)
}

func (anthropic) write(q request, r reply) []event {
	block, empty, delta, stop := map[string]any{"type": "text", "text": r.Text}, map[string]any{"type": "text", "text": ""},
		map[string]any{"type": "text_delta", "text": r.Text}, "end_turn"
	if r.Call != nil {
		args := r.Call.Args
		if r.Call.Search {
			args = map[string]any{"query": fmt.Sprintf("select:mcp__colab-relay__%s", args["query"]), "max_results": 5}
		}
		block = map[string]any{"type": "tool_use", "id": "toolu_" + r.Call.ID, "name": r.Call.Tool.Name, "input": args}
		empty = map[string]any{"type": "tool_use", "id": "toolu_" + r.Call.ID, "name": r.Call.Tool.Name, "input": map[string]any{}}
		delta, stop = map[string]any{"type": "input_json_delta", "partial_json": string(marshal(args))}, "tool_use"
	}
	message := map[string]any{
		"id": fmt.Sprintf("msg_%d", r.N), "type": "message", "role": "assistant", "model": q.Model, "content": []any{},
		"stop_reason": nil, "stop_sequence": nil, "usage": map[string]any{"input_tokens": 10, "output_tokens": 1},
	}
	if !q.Stream {
		message["content"], message["stop_reason"] = []any{block}, stop
		return []event{{Data: message}}
	}
	typed := func(name string, fields map[string]any) event {
		fields["type"] = name
		return event{name, fields}
	}
	return []event{
		typed("message_start", map[string]any{"message": message}),
		typed("content_block_start", map[string]any{"index": 0, "content_block": empty}),
		typed("content_block_delta", map[string]any{"index": 0, "delta": delta}),
		typed("content_block_stop", map[string]any{"index": 0}),
		typed("message_delta", map[string]any{"delta": map[string]any{"stop_reason": stop, "stop_sequence": nil}, "usage": map[string]any{"output_tokens": 5}}),
		typed("message_stop", map[string]any{}),
	}
}
