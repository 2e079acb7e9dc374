package protocol

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
)

// DecodeJSON decodes JSON text of not too many fields (see [CheckJSON]) into v. Its other
// errors complete "… is not what is wanted here: ", and name the field and what is needed in
// words of JSON, where encoding/json has those of Go.
func DecodeJSON(text []byte, v any) error {
	if err := CheckJSON(text); err != nil {
		return err
	}
	err := json.Unmarshal(text, v)
	wrong, ok := errors.AsType[*json.UnmarshalTypeError](err)
	if !ok || wrong.Type == nil {
		return err
	}
	field := wrong.Field
	if field == "" {
		field = "it"
	}
	return fmt.Errorf("%s is %s; %s is needed", field, jsonValue(wrong.Value), jsonForm(wrong.Type))
}

// jsonValue is what encoding/json says of a value that it has found: "string", "number 1.5".
func jsonValue(s string) string {
	switch s {
	case "array", "object":
		return "an " + s
	case "string", "number":
		return "a " + s
	case "bool":
		return "true or false"
	}
	return fmt.Sprintf("the %.40s", s)
}

// jsonForm is how a value of a type is written in JSON.
func jsonForm(t reflect.Type) string {
	switch k := t.Kind(); k {
	case reflect.Pointer:
		return jsonForm(t.Elem())
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a string"
	case reflect.Slice, reflect.Array:
		return "an array"
	case reflect.Map, reflect.Struct:
		return "an object"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return fmt.Sprintf("a whole number of %d bits", t.Bits())
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return fmt.Sprintf("a whole number of %d bits that is not negative", t.Bits())
	}
	return "another value"
}
