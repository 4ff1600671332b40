package standin

import "maps"

// Tools is the page's answer to tools/list.
func Tools() []map[string]any {
	number, text := map[string]any{"type": "integer"}, map[string]any{"type": "string"}
	cellID, index := map[string]any{"cellId": text}, map[string]any{"cellIndex": number}
	and := func(all ...map[string]any) map[string]any {
		one := map[string]any{}
		for _, m := range all {
			maps.Copy(one, m)
		}
		return one
	}
	tool := func(name string, properties map[string]any, required ...string) map[string]any {
		schema := map[string]any{"type": "object", "properties": properties}
		if len(required) > 0 {
			schema["required"] = required
		}
		return map[string]any{"name": name, "description": name, "inputSchema": schema}
	}
	language := map[string]any{"language": map[string]any{"type": "string", "enum": []string{"python", "r", "julia"}}}
	return []map[string]any{
		tool("add_code_cell", and(index, language, map[string]any{"code": text}), "cellIndex", "language", "code"),
		tool("add_text_cell", and(index, map[string]any{"content": text}), "cellIndex", "content"),
		tool("update_cell", and(cellID, map[string]any{"content": text}), "cellId", "content"),
		tool("delete_cell", cellID, "cellId"),
		tool("move_cell", and(cellID, index), "cellId", "cellIndex"),
		tool("get_cells", map[string]any{"cellIndexStart": number, "cellIndexEnd": number, "includeOutputs": map[string]any{"type": "boolean"}}),
		tool("run_code_cell", cellID, "cellId"),
	}
}
