package cli

import (
	"reflect"
	"slices"
	"strings"
)

// grammarFor returns what of the grammar a command line needs, and its global flags: the
// verb that it begins with. It is the whole if that is no verb, or one about all verbs,
// which has the tag "whole". To build the whole takes a third of the CPU time of a short
// command, and clients wait while a server starts.
func grammarFor(args []string) (any, *globals) {
	if len(args) > 0 && args[0] != "" {
		if verb, ok := verbField(args[0]); ok {
			version, _ := reflect.TypeFor[grammar]().FieldByName("Version")
			part := reflect.New(reflect.StructOf([]reflect.StructField{
				{Name: "Globals", Type: reflect.TypeFor[globals](), Tag: `embed:""`},
				{Name: version.Name, Type: version.Type, Tag: version.Tag},
				{Name: verb.Name, Type: verb.Type, Tag: verb.Tag},
			}))
			return part.Interface(), part.Elem().Field(0).Addr().Interface().(*globals)
		}
	}
	whole := new(grammar)
	return whole, &whole.globals
}

// verbField finds the field of a verb by its name or an alias; false: there is none that
// can be without the others.
func verbField(word string) (reflect.StructField, bool) {
	for f := range reflect.TypeFor[grammar]().Fields() {
		if _, ok := f.Tag.Lookup("cmd"); !ok {
			continue
		}
		name, ok := f.Tag.Lookup("name")
		if !ok {
			name = strings.ToLower(f.Name)
		}
		if name == word || slices.Contains(strings.Split(f.Tag.Get("aliases"), ","), word) {
			_, whole := f.Tag.Lookup("whole")
			return f, !whole
		}
	}
	return reflect.StructField{}, false
}
