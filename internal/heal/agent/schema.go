package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// schema is what tools say of their input, in the words of JSON schema (draft 2020-12);
// another word is refused. A library for all of JSON schema costs each start of a role
// and each call of the command line milliseconds: it reads the schemas of schemas when
// a program begins.
type schema struct {
	Type        string `json:"type"` // object, string, integer or boolean
	Description string `json:"description"`

	// Of an object. AdditionalProperties is true if it is absent.
	Properties           map[string]*schema `json:"properties"`
	Required             []string           `json:"required"`
	AdditionalProperties *bool              `json:"additionalProperties"`

	// Of a string: in code points, and an RE2 expression.
	MinLength *int   `json:"minLength"`
	MaxLength *int   `json:"maxLength"`
	Pattern   string `json:"pattern"`
	pattern   *regexp.Regexp

	// Of an integer.
	Minimum *int64 `json:"minimum"`
	Maximum *int64 `json:"maximum"`
}

// maxWrong is how many faults of one input are told.
const maxWrong = 5

// readSchema refuses all that an input would not be held to.
func readSchema(raw []byte) (*schema, error) {
	s := &schema{Type: "object"}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(s); err != nil {
		return nil, err
	}
	if s.Type != "object" {
		return nil, fmt.Errorf("type is %q; the input of a tool is an object", s.Type)
	}
	return s, s.prepare("")
}

func (s *schema) prepare(at string) (err error) {
	words := map[string]bool{
		"object":  s.Properties != nil || s.Required != nil || s.AdditionalProperties != nil,
		"string":  s.MinLength != nil || s.MaxLength != nil || s.Pattern != "",
		"integer": s.Minimum != nil || s.Maximum != nil,
		"boolean": false,
	}
	if _, known := words[s.Type]; !known {
		return fmt.Errorf("%stype is %q; it is one of object, string, integer and boolean", at, s.Type)
	}
	for kind, has := range words {
		if has && kind != s.Type {
			return fmt.Errorf("%stype is %s, and it has words for type %s", at, s.Type, kind)
		}
	}
	if s.pattern, err = regexp.Compile(s.Pattern); err != nil {
		return fmt.Errorf("%spattern: %w", at, err)
	}
	for key, p := range s.Properties {
		if p == nil {
			return fmt.Errorf("%s%s has no schema", at, key)
		}
		if err := p.prepare(at + key + ": "); err != nil {
			return err
		}
	}
	return nil
}

// check holds the input of a tool to its schema. The error names the fields that are
// wrong, and what they must be.
func (s *schema) check(input json.RawMessage) error {
	d := json.NewDecoder(bytes.NewReader(input))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return fmt.Errorf("it is not JSON: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("it is not JSON: something follows the first value")
	}
	var wrong []string
	s.compare(v, "", func(at, format string, args ...any) {
		if len(wrong) < maxWrong {
			wrong = append(wrong, name(strings.TrimPrefix(at+": ", ": ")+fmt.Sprintf(format, args...)))
		}
	})
	if len(wrong) == 0 {
		return nil
	}
	return errors.New(strings.Join(wrong, "; "))
}

func (s *schema) compare(v any, at string, wrong func(at, format string, args ...any)) {
	if got := typeOf(v); got != s.Type {
		wrong(at, "got %s, want %s", got, s.Type)
		return
	}
	switch v := v.(type) {
	case string:
		length := utf8.RuneCountInString(v)
		switch {
		case s.MinLength != nil && length < *s.MinLength:
			wrong(at, "minLength: got %d, want %d", length, *s.MinLength)
		case s.MaxLength != nil && length > *s.MaxLength:
			wrong(at, "maxLength: got %d, want %d", length, *s.MaxLength)
		case !s.pattern.MatchString(v):
			wrong(at, "does not match the pattern %s", s.Pattern)
		}
	case json.Number:
		n, _ := v.Int64() // beyond 64 bits: the last number that has them
		switch {
		case s.Minimum != nil && n < *s.Minimum:
			wrong(at, "minimum: got %s, want %d", v, *s.Minimum)
		case s.Maximum != nil && n > *s.Maximum:
			wrong(at, "maximum: got %s, want %d", v, *s.Maximum)
		}
	case map[string]any:
		for _, key := range s.Required {
			if _, ok := v[key]; !ok {
				wrong(at, "missing property %q", key)
			}
		}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if p := s.Properties[key]; p != nil {
				p.compare(v[key], strings.TrimPrefix(at+"."+key, "."), wrong)
			} else if s.AdditionalProperties != nil && !*s.AdditionalProperties {
				wrong(at, "additional property %q is not allowed", key)
			}
		}
	}
}

// typeOf names the type of a JSON value as a schema does. An integer is written as one:
// 1.0 and 1e3 are none.
func typeOf(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case string:
		return "string"
	case json.Number:
		if strings.ContainsAny(v.String(), ".eE") {
			return "number"
		}
		return "integer"
	case []any:
		return "array"
	}
	return "object"
}
