package hostilevm

import (
	"strings"
	"time"

	"colabrelay/shared/contract"
)

// formCases send answers whose JSON has another form than the contract's.
var formCases = []Case{
	{Name: "null", About: "makes every value null", warp: func(v any) any { return each(v, func(any) any { return nil }) }},
	{Name: "paths", About: "makes every text a path of the laptop", warp: func(v any) any { return each(v, text("../../../.ssh/authorized_keys")) }},
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

// text returns a change of texts to s. It leaves those that a program compares, such as ids.
func text(s string) func(any) any {
	return func(v any) any {
		old, ok := v.(string)
		if _, notATime := time.Parse(time.RFC3339Nano, old); !ok || len(old) < 5 || notATime == nil || strings.HasSuffix(old, "-1") || old == string(contract.StatusSucceeded) {
			return v
		}
		return s
	}
}
