package op

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// argument describes one field of an arguments struct, according to its tags.
type argument struct {
	name, doc string
	was       string // an earlier name, which is accepted
	index     []int
	typ       reflect.Kind
	def       json.RawMessage // nil means required
	min, max  *float64
	choices   []string // the values that a string may have; nil for any
	list      bool     // a list of strings may be given in place of a string
	rare      bool     // accepted, but not in the schema: a hint names it where it is needed

	// What a person gives: the name of a position, or of a flag and its letter; and the text of its help.
	arg, flag, usage string
	complete         string // what a shell offers for the argument
}

// argumentsOf reads the fields of an arguments struct. Tags: json (the name), doc, default
// (makes it optional), min and max (of a number's value, or of a string's length in bytes),
// choices (the values of a string, separated by commas), list (see joined), rare (not in the
// schema), was (an earlier name); for the command line arg (the name of a position, in brackets
// if a person may omit it), flag (the name
// of a flag, and its letter), usage and complete. A person alone gives what has the name "-".
// It panics at start-up if a tag is wrong.
func argumentsOf(t reflect.Type) []argument {
	return slices.DeleteFunc(fieldsOf(t), func(a argument) bool { return a.name == "-" })
}

func fieldsOf(t reflect.Type) []argument {
	var own, embedded []argument // a tool's own arguments come first
	for _, f := range reflect.VisibleFields(t) {
		if f.Anonymous {
			continue
		}
		a := argument{name: f.Tag.Get("json"), doc: f.Tag.Get("doc"), was: f.Tag.Get("was"), index: f.Index, typ: f.Type.Kind(), list: f.Tag.Get("list") == "true",
			arg: f.Tag.Get("arg"), flag: f.Tag.Get("flag"), usage: f.Tag.Get("usage"), complete: f.Tag.Get("complete")}
		if def, ok := f.Tag.Lookup("default"); ok {
			a.def = json.RawMessage(def)
			if a.typ == reflect.String {
				a.def = encode(def)
			}
		}
		a.min, a.max = boundTag(f, "min"), boundTag(f, "max")
		if choices, ok := f.Tag.Lookup("choices"); ok {
			a.choices = strings.Split(choices, ",")
		}
		_, a.rare = f.Tag.Lookup("rare")
		if len(f.Index) == 1 {
			own = append(own, a)
		} else {
			embedded = append(embedded, a)
		}
	}
	return append(own, embedded...)
}

func boundTag(f reflect.StructField, key string) *float64 {
	s, ok := f.Tag.Lookup(key)
	if !ok {
		return nil
	}
	v, err := strconv.ParseFloat(s, 64)
	if err != nil {
		panic(fmt.Sprintf("tag %s of %s: %v", key, f.Name, err))
	}
	return &v
}

// parseArguments reads a call's arguments into args, a struct, and returns notes on those that the
// schema does not have: hosts add some to every call. It reports all faults together, in words
// that a model understands; the SDK's own validation prints Go structs.
func parseArguments(defs []argument, raw json.RawMessage, args reflect.Value) (notes []string, problem *Problem) {
	given := map[string]json.RawMessage{}
	if trimmed := bytes.TrimSpace(raw); len(trimmed) > 0 && string(trimmed) != "null" {
		if json.Unmarshal(raw, &given) != nil {
			return nil, badArguments(defs, []string{"arguments must be a JSON object"})
		}
	}
	maps.DeleteFunc(given, func(_ string, value json.RawMessage) bool { return string(value) == "null" })
	notes, faults := spelled(defs, given)
	for _, d := range defs {
		value, ok := given[d.name]
		delete(given, d.name)
		if fault := d.set(args.FieldByIndex(d.index), value, ok); fault != "" {
			faults = append(faults, fault)
		}
	}
	var unknown []string
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if unknown = append(unknown, strconv.Quote(clipName(name))); len(unknown) == maxUnknown {
			break
		}
	}
	switch {
	case len(faults) > 0:
		for _, name := range unknown { // one may be meant for one that is missing
			faults = append(faults, "there is no argument "+name)
		}
		return nil, badArguments(defs, faults)
	case len(unknown) > 0:
		notes = append(notes, fmt.Sprintf("Ignored arguments that this tool does not have: %s.", strings.Join(unknown, ", ")))
	}
	return notes, nil
}

// maxUnknown bounds the arguments that are named as unknown.
const maxUnknown = 5

// spelled gives arguments in the other spelling (cellId, cell_id), and under an earlier name, the
// name of their schema. It returns notes on earlier names, and the faults of those that are given
// twice.
func spelled(defs []argument, given map[string]json.RawMessage) (notes, faults []string) {
	names := map[string]string{}
	for _, d := range defs {
		names[bare(d.was)], names[bare(d.name)] = d.name, d.name
	}
	delete(names, "") // of those without an earlier one
	for _, each := range slices.Sorted(maps.Keys(given)) {
		name, known := names[bare(each)]
		if !known || name == each {
			continue
		}
		if _, twice := given[name]; twice {
			faults = append(faults, fmt.Sprintf("%q is given twice, also as %q", name, clipName(each)))
		} else {
			given[name] = given[each]
			if bare(each) != bare(name) {
				notes = append(notes, fmt.Sprintf("The argument %q is called %q.", clipName(each), name))
			}
		}
		delete(given, each)
	}
	return notes, faults
}

// bare returns what the spellings of a name have in common.
func bare(name string) string { return strings.ToLower(strings.ReplaceAll(name, "_", "")) }

// inType returns the value in the argument's type where a model wrote it in another one: numbers and
// truth values as strings, and the other way round. An empty string in place of a number means the
// default.
func (a *argument) inType(raw json.RawMessage) json.RawMessage {
	var text string
	isString := json.Unmarshal(raw, &text) == nil
	switch {
	case a.typ != reflect.String && isString && text == "":
		return json.RawMessage("null")
	case a.typ == reflect.Bool && isString:
		return json.RawMessage(strings.ToLower(strings.TrimSpace(text)))
	case a.typ != reflect.String && isString:
		return json.RawMessage(strings.TrimSpace(text))
	case a.typ == reflect.String && !a.list && len(raw) > 0 && strings.ContainsRune("-0123456789tf", rune(raw[0])):
		return encode(string(raw))
	}
	return raw
}

// set writes the argument to field and returns its fault; empty if there is none.
func (a *argument) set(field reflect.Value, raw json.RawMessage, given bool) string {
	if given {
		raw = a.inType(raw)
	}
	if !given || string(raw) == "null" {
		if a.def == nil {
			return fmt.Sprintf("%q is missing", a.name)
		}
		raw = a.def
	}
	if a.typ == reflect.String {
		var s string
		if a.list {
			raw = joined(raw)
		}
		if json.Unmarshal(raw, &s) != nil {
			if a.list {
				return fmt.Sprintf("%q must be a string or a list of strings", a.name)
			}
			return fmt.Sprintf("%q must be a string", a.name)
		}
		field.SetString(s)
		if a.choices != nil && s == "" {
			_ = json.Unmarshal(a.def, &s) // empty means the default, as if it were omitted
			field.SetString(s)
		}
		if a.choices != nil && s != "" && !slices.Contains(a.choices, s) {
			return fmt.Sprintf("%q is %q, not one of %s", a.name, clipName(s), strings.Join(a.choices, ", "))
		}
		return a.bounds(float64(len(s)), " bytes")
	}
	if a.typ == reflect.Bool {
		var b bool
		if json.Unmarshal(raw, &b) != nil {
			return fmt.Sprintf("%q must be true or false", a.name)
		}
		field.SetBool(b)
		return ""
	}
	n, err := strconv.ParseFloat(string(raw), 64)
	whole := a.typ == reflect.Int64
	switch {
	case whole && (err != nil || n != math.Trunc(n) || !(math.Abs(n) <= 1<<53)):
		return fmt.Sprintf("%q must be a whole number", a.name)
	case err != nil || math.IsNaN(n) || math.IsInf(n, 0):
		return fmt.Sprintf("%q must be a number", a.name)
	case whole:
		field.SetInt(int64(n))
	default:
		field.SetFloat(n)
	}
	return a.bounds(n, "")
}

func (a *argument) bounds(n float64, unit string) string {
	if a.min != nil && n < *a.min {
		if unit != "" && *a.min == 1 {
			return fmt.Sprintf("%q must not be empty", a.name)
		}
		return fmt.Sprintf("%q must be at least %s%s", a.name, number(*a.min), unit)
	}
	if a.max != nil && n > *a.max {
		return fmt.Sprintf("%q must be at most %s%s", a.name, number(*a.max), unit)
	}
	return ""
}

func (a *argument) jsonType() string {
	switch a.typ {
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "boolean"
	case reflect.Int64:
		return "integer"
	case reflect.Float64:
		return "number"
	}
	panic(fmt.Sprintf("argument %s: no JSON type for %s", a.name, a.typ))
}

func number(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

func clipName(s string) string { return s[:min(len(s), 60)] }

// badArguments says what is wrong and which arguments the tool has.
func badArguments(defs []argument, faults []string) *Problem {
	var takes []string
	for _, d := range defs {
		if d.rare {
			continue
		}
		s := d.name + " (" + d.jsonType()
		if d.def != nil {
			s += ", optional"
		}
		takes = append(takes, s+")")
	}
	return &Problem{
		Code:    codeBadRequest,
		Message: "bad arguments: " + strings.Join(faults, "; "),
		Hint:    "Call the tool again with these arguments: " + strings.Join(takes, ", ") + ".",
	}
}

// again is the same call as a model writes it.
func (c *call) again() string { return sameCall(c.tool, c.args) }

// sameCall is a tool's call as a model writes it, with the arguments that are not their defaults.
func sameCall(name string, args any) string {
	value, pairs := reflect.ValueOf(args), []any{}
	for _, a := range argumentsOf(value.Type()) {
		if given := value.FieldByIndex(a.index).Interface(); !bytes.Equal(encode(given), a.def) {
			pairs = append(pairs, a.name, given)
		}
	}
	return command(name, pairs...)
}

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

func inSeconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
