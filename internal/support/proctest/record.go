package proctest

import (
	"encoding"
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"
)

// newer is a field that no version has.
const newer = "of_a_version_to_come"

// Record reads a file of JSON that an earlier version of tend has written into the value
// that v points to, and fails the test unless all of it comes back when that is written: a
// field that was renamed, or is another type, is a record that is lost by an upgrade.
// Then it reads the file with a further field in each object that is a struct, as a later
// version writes it: that must change nothing.
func Record(t testing.TB, path string, v any) {
	t.Helper()
	was := Value(os.ReadFile(path))(t)
	var want any
	Must(t, json.Unmarshal(was, &want))
	Must(t, json.Unmarshal(was, v))
	check := func(v any, what string) {
		t.Helper()
		var got any
		Must(t, json.Unmarshal(Value(json.Marshal(v))(t), &got))
		if lost := lack(want, got, "."); lost != "" {
			t.Errorf("%s%s: %s is lost or another value", path, what, lost)
		}
	}
	check(v, "")
	typ := reflect.TypeOf(v).Elem()
	var grown any
	Must(t, json.Unmarshal(was, &grown))
	if grow(grown, typ) == 0 {
		t.Errorf("%s: there is no struct in it", path)
	}
	later := reflect.New(typ).Interface()
	if err := json.Unmarshal(Value(json.Marshal(grown))(t), later); err != nil {
		t.Errorf("%s of a later version: %v", path, err)
	}
	check(later, " of a later version")
}

// lack returns where something of want is not in got; "": nowhere. What got has beside it
// does not count.
func lack(want, got any, at string) string {
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			return at
		}
		for key, value := range w {
			if lost := lack(value, g[key], at+"/"+key); lost != "" {
				return lost
			}
		}
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(w) {
			return at
		}
		for i := range w {
			if lost := lack(w[i], g[i], at+"/[]"); lost != "" {
				return lost
			}
		}
	default:
		if !reflect.DeepEqual(want, got) {
			return at
		}
	}
	return ""
}

// grow adds a field to each object that is decoded into a struct, and returns to how many.
func grow(node any, typ reflect.Type) (n int) {
	for typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	for _, own := range []reflect.Type{reflect.TypeFor[json.Unmarshaler](), reflect.TypeFor[encoding.TextUnmarshaler]()} {
		if typ.Implements(own) || reflect.PointerTo(typ).Implements(own) {
			return 0
		}
	}
	object, _ := node.(map[string]any)
	list, _ := node.([]any)
	switch {
	case typ.Kind() == reflect.Struct && object != nil:
		for _, f := range reflect.VisibleFields(typ) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name == "" {
				name = f.Name
			}
			if value, ok := object[name]; ok && f.IsExported() {
				n += grow(value, f.Type)
			}
		}
		object[newer] = map[string]any{"a": []any{1, "b"}}
		n++
	case typ.Kind() == reflect.Map && object != nil:
		for _, value := range object {
			n += grow(value, typ.Elem())
		}
	case typ.Kind() == reflect.Slice || typ.Kind() == reflect.Array:
		for _, value := range list {
			n += grow(value, typ.Elem())
		}
	}
	return n
}
