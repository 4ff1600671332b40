package plain

import "reflect"

// Rule returns the plain form of a string. A nil Rule keeps all strings below its field.
type Rule func(string) string

// Deep applies rules to every string that v, a pointer, leads to: fields, items, and the
// keys and values of maps. rules has the name of a field as key, or "" for all other
// fields. Byte slices are not changed.
func Deep(v any, rules map[string]Rule) {
	deep{rules}.walk(reflect.ValueOf(v), rules[""])
}

type deep struct{ rules map[string]Rule }

func (d deep) walk(v reflect.Value, rule Rule) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			d.indirect(v, rule)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			field := v.Type().Field(i)
			below, named := d.rules[field.Name]
			if !named {
				below = rule
			}
			if below != nil && (field.IsExported() || field.Anonymous) {
				d.walk(v.Field(i), below)
			}
		}
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return
		}
		for i := range v.Len() {
			d.walk(v.Index(i), rule)
		}
	case reflect.Map:
		d.table(v, rule)
	case reflect.String:
		// A plain string is not written, because others may be reading it.
		if fresh := rule(v.String()); v.CanSet() && fresh != v.String() {
			v.SetString(fresh)
		}
	}
}

// indirect walks the value that v points to. The value of an interface cannot be set, so a
// copy replaces it.
func (d deep) indirect(v reflect.Value, rule Rule) {
	if v.Kind() == reflect.Pointer {
		d.walk(v.Elem(), rule)
		return
	}
	inner := reflect.New(v.Elem().Type()).Elem()
	inner.Set(v.Elem())
	d.walk(inner, rule)
	if v.CanSet() {
		v.Set(inner)
	}
}

// table replaces a map's entries by plain ones.
func (d deep) table(v reflect.Value, rule Rule) {
	if v.IsNil() || !v.CanSet() {
		return
	}
	fresh := reflect.MakeMapWithSize(v.Type(), v.Len())
	for each := v.MapRange(); each.Next(); {
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		key.Set(each.Key())
		value.Set(each.Value())
		d.walk(key, rule)
		d.walk(value, rule)
		fresh.SetMapIndex(key, value)
	}
	v.Set(fresh)
}
