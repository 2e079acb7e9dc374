package config

import (
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
)

// object is a JSON object of a schema.
type object = map[string]any

// Schema returns the JSON schema (draft 2020-12) of a file, for editors. It allows all
// that Parse allows; what JSON schema has no words for, such as cycles, only Parse
// refuses.
func Schema() ([]byte, error) {
	defs := object{}
	root := structSchema(reflect.TypeFor[Config](), defs)
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["title"] = "tend.yaml"
	root["patternProperties"] = object{"^x-": object{}}
	root["$defs"] = defs
	out, err := json.MarshalIndent(root, "", "  ")
	if err != nil {
		return nil, err
	}
	return append(out, '\n'), nil
}

// structSchema is the schema of a mapping, or of the one field that may stand alone.
func structSchema(t reflect.Type, defs object) object {
	fields, keys := fieldsOf(t)
	props, required := object{}, []string{}
	s := object{"type": "object", "properties": props, "additionalProperties": false}
	var short object
	for _, key := range keys {
		f := fields[key]
		props[key] = fieldSchema(f, defs)
		if other, either := strings.CutPrefix(f.Tag.Get("required"), unless); either {
			s["anyOf"] = []any{object{"required": []string{key}}, object{"required": []string{other}}}
		} else if f.Tag.Get("required") != "" {
			required = append(required, key)
		}
		if f.Tag.Get("short") != "" {
			short = fieldSchema(f, defs)
		}
	}
	if len(required) > 0 {
		s["required"] = required
	}
	if short != nil {
		s = object{"anyOf": []any{s, short}}
	}
	return s
}

// ref puts the schema of a struct among the definitions.
func ref(t reflect.Type, defs object) object {
	name := strings.ToLower(t.Name()[:1]) + t.Name()[1:]
	if _, ok := defs[name]; !ok {
		defs[name] = true // it is being made
		defs[name] = structSchema(t, defs)
	}
	return object{"$ref": "#/$defs/" + name}
}

func fieldSchema(f reflect.StructField, defs object) object {
	s := typeSchema(f.Type, f, defs)
	if doc := f.Tag.Get("doc"); doc != "" {
		s["description"] = doc
	}
	if text := f.Tag.Get("default"); text != "" {
		s["default"] = defaultValue(f.Type, text)
	}
	return s
}

func defaultValue(t reflect.Type, text string) any {
	switch t.Kind() {
	case reflect.Bool:
		return text == "true"
	case reflect.Int, reflect.Float64:
		if n, err := strconv.ParseFloat(text, 64); err == nil {
			return n
		}
	case reflect.Slice:
		all := []any{}
		for _, word := range strings.Split(text, ",") {
			all = append(all, defaultValue(t.Elem(), word))
		}
		return all
	}
	return text
}

// anyWord is what may stand where a text is asked for: all scalars of YAML are taken
// as they are written.
func anyWord() object { return object{"type": []string{"string", "number", "boolean"}} }

func typeSchema(t reflect.Type, f reflect.StructField, defs object) object {
	switch t {
	case reflect.TypeFor[Command]():
		return object{"anyOf": []any{anyWord(), object{"type": "array", "items": anyWord(), "minItems": 1}}}
	case reflect.TypeFor[Dependencies]():
		return object{"anyOf": []any{
			object{"type": "array", "items": anyWord(), "uniqueItems": true},
			object{"type": "object", "additionalProperties": ref(reflect.TypeFor[condition](), defs)},
		}}
	case reflect.TypeFor[Sockets]():
		return object{"type": "object", "additionalProperties": object{"type": []string{"string", "number"}}, "maxProperties": MaxSockets}
	case reflect.TypeFor[Strings]():
		return object{"anyOf": []any{anyWord(), object{"type": "array", "items": anyWord()}}}
	case reflect.TypeFor[Duration](), reflect.TypeFor[Size](), reflect.TypeFor[Signal](), reflect.TypeFor[Address](), reflect.TypeFor[URL]():
		return object{"type": []string{"string", "number"}}
	case reflect.TypeFor[Pattern](), reflect.TypeFor[Cron](), reflect.TypeFor[Zone]():
		return anyWord()
	}
	switch t.Kind() {
	case reflect.Pointer:
		return ref(t.Elem(), defs)
	case reflect.Struct:
		return ref(t, defs)
	case reflect.Slice:
		return object{"type": "array", "items": typeSchema(t.Elem(), f, defs)}
	case reflect.Map:
		return object{"type": "object", "additionalProperties": typeSchema(t.Elem(), reflect.StructField{}, defs)}
	case reflect.Bool:
		return object{"anyOf": []any{object{"type": "boolean"}, object{"enum": []string{"true", "True", "TRUE", "false", "False", "FALSE"}}}}
	case reflect.Int, reflect.Float64:
		kind := "integer"
		if t.Kind() == reflect.Float64 {
			kind = "number"
		}
		s := object{"type": kind}
		for tag, word := range map[string]string{"min": "minimum", "max": "maximum"} {
			if n, err := strconv.ParseFloat(f.Tag.Get(tag), 64); err == nil {
				s[word] = n
			}
		}
		return object{"anyOf": []any{s, object{"type": "string", "pattern": "^[-+0-9.eE_a-zA-Z]+$"}}}
	}
	if enum := f.Tag.Get("enum"); enum != "" {
		return object{"enum": strings.Split(enum, ",")}
	}
	return anyWord()
}
