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
// providers refuse a complete tool list that contains one anyOf.
func inputSchema(arguments []argument) json.RawMessage {
	properties, required := object{}, []string{}
	for _, a := range arguments {
		p := object{"type": a.jsonType(), "description": a.doc}
		least, most := "minimum", "maximum"
		if a.typ == reflect.String {
			least, most = "minLength", "maxLength"
		}
		if a.min != nil {
			p[least] = *a.min
		}
		if a.max != nil {
			p[most] = *a.max
		}
		if a.def == nil {
			required = append(required, a.name)
		} else {
			p["default"] = a.def
		}
		properties[a.name] = p
	}
	return encode(object{"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

// outputSchema returns the schema of an answer: the fields of Outcome and of P. Only those
// of Outcome are required, because a failure has no payload.
func outputSchema[P any]() json.RawMessage {
	s := structSchema(reflect.TypeFor[Outcome]())
	properties := s["properties"].(object)
	for name, p := range structSchema(reflect.TypeFor[P]())["properties"].(object) {
		if _, twice := properties[name]; twice {
			panic(fmt.Sprintf("%s: field %q is the outcome's", reflect.TypeFor[P](), name))
		}
		properties[name] = p
	}
	return encode(s)
}

// encode returns the JSON of strings, numbers and maps of them, which can always be encoded.
func encode(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

func structSchema(t reflect.Type) object {
	properties, required := object{}, []string{}
	for _, f := range reflect.VisibleFields(t) {
		name, opt, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous || name == "-" || !f.IsExported() {
			continue
		}
		p := typeSchema(f.Type)
		if doc := f.Tag.Get("doc"); doc != "" {
			p["description"] = doc
		}
		properties[name] = p
		if opt != "omitempty" {
			required = append(required, name)
		}
	}
	return object{"type": "object", "properties": properties, "required": required}
}

// typeSchema returns the schema of a type that answers contain. A value that encoding/json
// may write as null is nullable, except a pointer to a struct, which is omitted instead.
func typeSchema(t reflect.Type) object {
	if t == reflect.TypeFor[time.Time]() {
		return object{"type": "string", "format": "date-time"}
	}
	if t == reflect.TypeFor[json.RawMessage]() {
		return object{} // any JSON
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
	case reflect.Struct:
		return structSchema(t)
	case reflect.Slice:
		return object{"type": []string{"array", "null"}, "items": typeSchema(t.Elem())}
	case reflect.Map:
		return object{"type": []string{"object", "null"}, "additionalProperties": typeSchema(t.Elem())}
	case reflect.Pointer:
		s := typeSchema(t.Elem())
		if name := s["type"].(string); name != "object" {
			s["type"] = []string{name, "null"}
		}
		return s
	}
	panic(fmt.Sprintf("no schema for %s", t))
}
