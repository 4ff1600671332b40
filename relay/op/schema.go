package op

import (
	"encoding/json"
	"reflect"
	"strings"
)

// object is a JSON Schema under construction. encoding/json sorts its keys, so
// schemas are the same in every build.
type object = map[string]any

// inputSchema returns the schema of a tool's arguments. It is flat because some model
// providers refuse a complete tool list that contains one anyOf. It does not forbid other
// names, because every name also has another spelling (see spelled).
func inputSchema(arguments []argument) json.RawMessage {
	properties, required := object{}, []string{}
	for _, a := range arguments {
		if a.rare {
			continue
		}
		p := object{"type": a.jsonType(), "description": a.description()}
		if a.choices != nil {
			p["enum"] = a.choices
		}
		if a.def == nil {
			required = append(required, a.name)
		} else { // some frameworks demand, and some send null for, whatever a model omits
			p["nullable"] = true
		}
		properties[a.name] = p
	}
	s := object{"type": "object", "properties": properties}
	if len(required) > 0 {
		s["required"] = required
	}
	return encode(s)
}

// description returns what a model reads about an argument. The default and the bounds are only
// here, because some hosts drop them from schemas.
func (a *argument) description() string {
	var facts []string
	switch string(a.def) {
	case "", `""`, "false", "-1": // which say nothing to a model
	default:
		facts = append(facts, "default "+strings.Trim(string(a.def), `"`))
	}
	if a.typ != reflect.String {
		switch {
		case a.min != nil && a.max != nil:
			facts = append(facts, number(*a.min)+" to "+number(*a.max))
		case a.min != nil && *a.min > 0:
			facts = append(facts, "at least "+number(*a.min))
		}
	}
	if len(facts) == 0 {
		return a.doc
	}
	return strings.TrimSuffix(a.doc, ".") + " (" + strings.Join(facts, ", ") + ")."
}

// encode returns the JSON of strings, numbers and maps of them, which can always be encoded.
func encode(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}
