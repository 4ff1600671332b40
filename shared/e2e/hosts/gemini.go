package main

import "encoding/json"

// gemini is Google's API generateContent, which Gemini CLI speaks.
type gemini struct{ stream bool }

type geminiPart struct {
	Text         *string
	InlineData   *geminiBlob
	FunctionCall *struct{ ID, Name string }
	// A result's pictures are in its parts, or beside it.
	FunctionResponse *struct {
		ID, Name string
		Response map[string]any
		Parts    []geminiPart
	}
}

type geminiBlob struct{ MIMEType, Data string }

func (g gemini) read(body []byte) (request, error) {
	var b struct {
		Tools            []struct{ FunctionDeclarations []struct{ Name string } }
		GenerationConfig struct{ ResponseMIMEType string }
		Contents         []struct {
			Role  string
			Parts []geminiPart
		}
	}
	if err := json.Unmarshal(body, &b); err != nil {
		return request{}, err
	}
	q := request{Stream: g.stream, JSON: b.GenerationConfig.ResponseMIMEType == "application/json"}
	for _, t := range b.Tools {
		for _, f := range t.FunctionDeclarations {
			q.Tools = append(q.Tools, tool{Name: f.Name})
		}
	}
	for _, c := range b.Contents {
		for _, p := range c.Parts {
			if i := p.item(); c.Role == "user" || i.Kind == called {
				q.Items = append(q.Items, i)
			}
		}
	}
	return q, nil
}

func (p geminiPart) item() item {
	switch {
	case p.FunctionCall != nil:
		return item{Kind: called, ID: p.FunctionCall.ID, Name: p.FunctionCall.Name}
	case p.FunctionResponse != nil:
		r := p.FunctionResponse
		i := item{Kind: result, ID: r.ID, Name: r.Name}
		for _, field := range []string{"output", "error"} {
			if text, ok := r.Response[field].(string); ok && len(r.Response) == 1 {
				i.Texts = []string{text}
			}
		}
		if i.Texts == nil {
			i.Texts = []string{string(marshal(r.Response))}
		}
		for _, inner := range r.Parts {
			shown := inner.item()
			i.Texts, i.Images = append(i.Texts, shown.Texts...), append(i.Images, shown.Images...)
		}
		return i
	case p.InlineData != nil:
		return item{Kind: said, Images: []picture{{p.InlineData.MIMEType, p.InlineData.Data}}}
	case p.Text != nil:
		return item{Kind: said, Texts: []string{*p.Text}}
	}
	return item{Kind: said}
}

func (g gemini) write(q request, r reply) []event {
	part := map[string]any{"text": r.Text}
	if r.Call != nil {
		part = map[string]any{"functionCall": map[string]any{"id": r.Call.ID, "name": r.Call.Tool.Name, "args": r.Call.Args}}
	}
	return []event{{Data: map[string]any{
		"candidates":    []any{map[string]any{"content": map[string]any{"role": "model", "parts": []any{part}}, "finishReason": "STOP", "index": 0}},
		"usageMetadata": map[string]any{"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15},
		"modelVersion":  "scripted",
	}}}
}
