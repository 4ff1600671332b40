package tools

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"
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

// outputSchema returns the schema of an answer: the fields of Outcome and of the payload. Only
// success is required, because a failure has no payload. A model pays for the tool list in
// every session, so the schema has names and types only: no descriptions, nothing of what the
// objects in a field contain, and no fields with the tag schema:"-", which few callers need.
func outputSchema(payload reflect.Type) json.RawMessage {
	properties := fieldSchemas(reflect.TypeFor[Outcome]())
	for name, p := range fieldSchemas(payload) {
		if _, twice := properties[name]; twice {
			panic(fmt.Sprintf("%s: field %q is the outcome's", payload, name))
		}
		properties[name] = p
	}
	return encode(object{"type": "object", "properties": properties, "required": []string{"success"}})
}

// encode returns the JSON of strings, numbers and maps of them, which can always be encoded.
func encode(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

// fieldSchemas returns the schemas of a struct's fields.
func fieldSchemas(t reflect.Type) object {
	properties := object{}
	for _, f := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous || name == "-" || !f.IsExported() || f.Tag.Get("schema") == "-" {
			continue
		}
		if nilable(f.Type) && options == "" {
			panic(fmt.Sprintf("field %q of %s may be null: omit it with omitzero or omitempty", name, t))
		}
		properties[name] = typeSchema(f.Type)
	}
	return properties
}

// nilable reports whether encoding/json may write a value of the type as null.
func nilable(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map, reflect.Interface:
		return true
	}
	return false
}

// typeSchema returns the schema of a type that answers contain. It has a single type and
// never null, because some clients map schemas to languages that have no such union: what
// is unknown is absent.
func typeSchema(t reflect.Type) object {
	switch t {
	case reflect.TypeFor[time.Time]():
		return object{"type": "string"}
	case reflect.TypeFor[json.RawMessage]():
		return object{"type": "object"} // the only JSON that answers contain unparsed
	case reflect.TypeFor[Row]():
		return object{"type": "array"} // of values of different types
	}
	switch t.Kind() {
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.String:
		return object{"type": "string"}
	case reflect.Int, reflect.Int64, reflect.Uint64:
		return object{"type": "integer"}
	case reflect.Float64:
		return object{"type": "number"}
	case reflect.Struct, reflect.Map:
		return object{"type": "object"}
	case reflect.Slice:
		return object{"type": "array", "items": typeSchema(t.Elem())}
	case reflect.Pointer:
		return typeSchema(t.Elem())
	}
	panic(fmt.Sprintf("no schema for %s", t))
}
