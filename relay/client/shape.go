package client

import (
	"encoding/json"
	"reflect"
	"strings"
	"sync"

	"colabrelay/shared/contract"
)

// shape says what a decoder makes of an array or object: which items become which structs, and
// how much memory they take. What becomes text again, such as a payload, has no shape.
type shape struct {
	object bool
	fields map[string]*shape // of a struct, those that have a shape, by folded name
	item   *shape            // of an array or a map; nil if its items are neither arrays nor objects
	bytes  int64             // of one item
	start  int64             // bytes of an empty one
	limit  int               // of items; 0 for the usual one
	events bool
}

// listLimits are bounds that the contract sets for the number of items, by the struct and the
// field's name.
var listLimits = map[string]int{
	"ExecutionList.executions": contract.MaxListExecutions,
	"JobList.jobs":             contract.MaxListJobs,
	"Job.steps":                contract.MaxJobEntries,
	"JobEntry.earlier":         contract.MaxJobAttempts,
	"Upload.missing":           contract.MaxUploadRanges,
	"Files.files":              contract.MaxListFiles,
	"Comparison.files":         contract.MaxManifestFiles,
	"BatchAnswer.files":        contract.MaxBatchFiles,
	"Contents.files":           contract.MaxBatchFiles,
}

const (
	// slack is how much more memory a list takes while it grows than its items do.
	slack = 2
	// mapStart and mapItem are what a map takes, and each of its entries besides key and value.
	mapStart = 400
	mapItem  = 80
)

var (
	shapes    sync.Map // of *shape, by reflect.Type
	rawJSON   = reflect.TypeFor[json.RawMessage]()
	decodable = reflect.TypeFor[json.Unmarshaler]()
)

// shapeOf returns the shape of what decodes into t; nil if it has none.
func shapeOf(t reflect.Type) *shape {
	if known, ok := shapes.Load(t); ok {
		return known.(*shape)
	}
	s := newShape(t)
	shapes.Store(t, s)
	return s
}

func newShape(t reflect.Type) *shape {
	if t == rawJSON || reflect.PointerTo(t).Implements(decodable) {
		return nil
	}
	switch t.Kind() {
	case reflect.Pointer:
		return newShape(t.Elem())
	case reflect.Slice, reflect.Array:
		return &shape{item: shapeOf(t.Elem()), bytes: slack * sizeOf(t.Elem()), events: t.Elem() == reflect.TypeFor[contract.Event]()}
	case reflect.Map:
		return &shape{object: true, item: shapeOf(t.Elem()), bytes: mapItem + sizeOf(t.Key()) + sizeOf(t.Elem()), start: mapStart}
	case reflect.Struct:
		s := &shape{object: true, fields: map[string]*shape{}}
		s.addFields(t)
		return s
	}
	return nil
}

// addFields adds the fields of a struct, and those of the structs that it embeds.
func (s *shape) addFields(t reflect.Type) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			s.addFields(f.Type)
			continue
		case name == "":
			name = f.Name
		}
		of := shapeOf(f.Type)
		if of == nil {
			continue
		}
		if n := listLimits[t.Name()+"."+name]; n > 0 {
			limited := *of
			limited.limit = n
			of = &limited
		}
		s.fields[fold(name)] = of
	}
}

// sizeOf returns the size of a value with what its pointers lead to.
func sizeOf(t reflect.Type) int64 {
	if t.Kind() == reflect.Pointer {
		return int64(t.Size()) + sizeOf(t.Elem())
	}
	size := int64(t.Size())
	for i := 0; t.Kind() == reflect.Struct && i < t.NumField(); i++ {
		if f := t.Field(i).Type; f.Kind() == reflect.Pointer {
			size += int64(f.Elem().Size())
		}
	}
	return size
}

// fold returns the form of a name that all names share which encoding/json takes for the same
// field: it ignores case, as Unicode folds it.
func fold(name string) string { return strings.ToLower(strings.ToUpper(name)) }

// within returns the shape of the array or object that begins in one of shape s, in the field
// with the name that stands in the text.
func (s *shape) within(name []byte) *shape {
	if s == nil {
		return nil
	}
	if s.fields == nil {
		return s.item
	}
	if f, ok := s.fields[string(name)]; ok {
		return f
	}
	return s.fields[fold(unquoted(name))]
}

// unquoted returns a name whose quotes are gone, without escapes.
func unquoted(name []byte) string {
	for _, c := range name {
		if c == '\\' {
			var plain string
			if json.Unmarshal([]byte(`"`+string(name)+`"`), &plain) == nil {
				return plain
			}
			break
		}
	}
	return string(name)
}
