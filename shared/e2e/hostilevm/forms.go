package hostilevm

import (
	"encoding/json"
	"math"
	"strings"

	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/fakevm"
)

// formCases send answers whose JSON has another form than the contract's.
var formCases = []Case{
	{Name: "null", About: "makes every value null", warp: func(v any) any { return each(v, func(any) any { return nil }) }},
	{Name: "types", About: "gives every value another type", warp: func(v any) any { return each(v, otherType) }},
	{Name: "largest", About: "makes every number the largest", warp: func(v any) any { return each(v, number(json.Number("9223372036854775807"))) }},
	{Name: "negative", About: "makes every number negative", warp: func(v any) any { return each(v, number(json.Number("-9223372036854775808"))) }},
	{Name: "float", About: "makes every number a huge fraction", warp: func(v any) any { return each(v, number(math.MaxFloat64)) }},
	{Name: "long", About: "makes every text 2 MB long, on one line", warp: func(v any) any { return each(v, text(strings.Repeat("a\u202e", 1<<19))) }},
	{Name: "lines", About: "gives every text 300,000 lines", warp: func(v any) any { return each(v, text(strings.Repeat("\n\r\x1b[1A", 150_000))) }},
	{Name: "paths", About: "makes every text a path of the laptop", warp: func(v any) any { return each(v, text("../../../.ssh/authorized_keys")) }},
	{Name: "nested", About: "answers with arrays in one another, 9,000 deep", warp: func(any) any { return nestedJSON(9_000) }},
	{Name: "deep-output", About: "shows JSON and metadata that are nested 9,000 deep", routes: func(*fakevm.VM) routes {
		return routes{"POST " + contract.PathExecutions: func(q question) fakevm.Reply {
			return execution(requestID(q), contract.Event{
				Type: contract.EventDisplayData, Data: bundle("application/json", string(nestedJSON(9_000))), Metadata: nestedJSON(9_000),
			})
		}}
	}},
	{Name: "empty", About: "answers everything with nothing", warp: func(any) any { return json.RawMessage("{}") }},
	{Name: "list", About: "answers everything with a list", warp: func(any) any { return json.RawMessage("[[],[]]") }},
}

func nestedJSON(levels int) json.RawMessage {
	return json.RawMessage(strings.Repeat("[", levels) + strings.Repeat("]", levels))
}

// each applies change to every value in v that is neither an object nor a list.
func each(v any, change func(any) any) any {
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = each(v[i], change)
		}
		return v
	case map[string]any:
		for key := range v {
			v[key] = each(v[key], change)
		}
		return v
	}
	return change(v)
}

// number returns a change of numbers to n. It leaves small ones, without which no answer is
// read: the protocol.
func number(n any) func(any) any {
	return func(v any) any {
		if old, ok := v.(json.Number); ok && old != contractProtocol {
			return n
		}
		return v
	}
}

var contractProtocol = json.Number(string(marshal(contract.Protocol)))

// text returns a change of texts to s. It leaves those that a program compares, such as ids.
func text(s string) func(any) any {
	return func(v any) any {
		old, ok := v.(string)
		if _, notATime := parseTime(old); !ok || len(old) < 5 || notATime == nil || strings.HasSuffix(old, "-1") || old == string(contract.StatusSucceeded) {
			return v
		}
		return s
	}
}

// otherType returns a value of another type.
func otherType(v any) any {
	switch v.(type) {
	case string:
		return []string{"a", "b"}
	case bool:
		return "true"
	case nil:
		return map[string]any{"a": nil}
	}
	return "7"
}
