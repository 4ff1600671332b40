package standin

import (
	"strings"

	"colabrelay/executor/jupyter"
)

// collected is what a cell's code has sent, as a notebook keeps it.
type collected struct {
	outputs       []map[string]any
	count         int
	replied, idle bool
	clear         bool // clear_output(wait=True): before the next output
}

func (c *collected) message(kind string, content map[string]any) {
	switch kind {
	case jupyter.MsgExecuteReply:
		c.replied = true
		if n, ok := content["execution_count"].(float64); ok {
			c.count = int(n)
		}
	case jupyter.MsgStatus:
		c.idle = content["execution_state"] == "idle"
	case jupyter.MsgClearOutput:
		if c.clear = content["wait"] == true; !c.clear {
			c.outputs = nil
		}
	case jupyter.MsgStream:
		text, _ := content["text"].(string)
		c.stream(content["name"], text)
	case jupyter.MsgDisplayData, jupyter.MsgExecuteResult, jupyter.MsgError:
		delete(content, "transient")
		content["output_type"] = kind
		c.add(content)
	}
}

// stream appends to the last output if that is of the same stream.
func (c *collected) stream(name any, text string) {
	if n := len(c.outputs); !c.clear && n > 0 && c.outputs[n-1]["output_type"] == "stream" && c.outputs[n-1]["name"] == name {
		c.outputs[n-1]["text"] = lines(strings.Join(c.outputs[n-1]["text"].([]string), "") + text)
		return
	}
	c.add(map[string]any{"output_type": "stream", "name": name, "text": lines(text)})
}

func (c *collected) add(output map[string]any) {
	if c.clear {
		c.outputs, c.clear = nil, false
	}
	c.outputs = append(c.outputs, output)
}
