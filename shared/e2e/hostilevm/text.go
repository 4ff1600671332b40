package hostilevm

import (
	"encoding/json"

	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/fakevm"
)

// Escape is added to strings. It clears the screen, sets the window's title, writes the
// clipboard, moves the cursor, reverses the writing direction, rings the bell and hides
// itself.
const Escape = "\x1b[2J\x1b]0;owned\x07\x1b]52;c;ZXZpbA==\x1b\\\u009b1A\u202e\u2066\u200b\x07\x08\x7f\rEVIL"

// textCases put control characters into text that a terminal or a model would show.
var textCases = []Case{
	{
		Name: "text", About: "puts escapes into every text and name of every answer", warp: func(v any) any { return poison(v, false) },
	},
	{
		Name: "text-all", About: "puts escapes into every string, also into ids and enumerated values", warp: func(v any) any { return poison(v, true) },
	},
	{
		Name: "text-errors", About: "refuses everything, with escapes in code, message and hint",
		routes: func(*fakevm.VM) routes {
			all := routes{}
			for route := range honest() {
				all[route] = func(question) fakevm.Reply {
					return refuse(contract.Error{Code: "forbidden_path", Message: "m" + Escape, Hint: "h" + Escape, RequestID: "r" + Escape})
				}
			}
			return all
		},
	},
}

// formal are fields with ids and enumerated values, which a program compares but does not
// show.
var formal = map[string]bool{
	"status": true, "kernel_id": true, "execution_id": true, "request_id": true, "type": true, "code": true,
	"etag": true, "sha256": true,
}

// times are fields with times. The relay refuses an answer with an invalid time.
var times = map[string]bool{"created_at": true, "started_at": true, "finished_at": true, "time": true, "modified": true}

// poison adds Escape to the strings in v and to keys that the VM chooses, such as the names
// of packages. It changes formal fields only if all is set.
func poison(v any, all bool) any {
	switch v := v.(type) {
	case string:
		return v + Escape
	case []any:
		for i := range v {
			v[i] = poison(v[i], all)
		}
	case map[string]any:
		for key, one := range v {
			if _, isText := one.(string); isText && (times[key] || formal[key] && !all) {
				continue
			}
			v[key] = poison(one, all)
		}
		if packages, ok := v["packages"].(map[string]any); ok {
			packages["evil"+Escape] = "1"
		}
	}
	return v
}

// bundle returns a MIME bundle with one payload, given as JSON.
func bundle(kind, payload string) map[string]json.RawMessage {
	return map[string]json.RawMessage{kind: json.RawMessage(payload)}
}

func marshal(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // the contract's own types
	}
	return text
}
