package agent

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
)

type m = map[string]any

// TestInputIsHeldToItsSchema: what is said of an input that does not fit.
func TestInputIsHeldToItsSchema(t *testing.T) {
	schema := proctest.Value(readSchema(proctest.Value(json.Marshal(input(props{
		"path": text("", 1, 4), "lines": number("", -1, 20), "name": m{"type": "string", "pattern": "^[A-Z]+$"}, "all": m{"type": "boolean"},
	}, "path")))(t)))(t)
	for in, want := range map[string]string{
		`{"path": "a"}`: "",
		` {"path": "äöüß", "lines": 20, "name": "A", "all": false} `: "",
		`{"path": "a", "lines": -1}`:                                 "",
		`{"path": ""}`:                                               "path: minLength: got 0, want 1",
		`{"path": "abcde"}`:                                          "path: maxLength: got 5, want 4",
		`{"path": "a", "lines": 21}`:                                 "lines: maximum: got 21, want 20",
		`{"path": "a", "lines": -2}`:                                 "lines: minimum: got -2, want -1",
		`{"path": "a", "lines": 99999999999999999999}`:               "lines: maximum: got 99999999999999999999, want 20",
		`{"path": "a", "lines": -99999999999999999999}`:              "lines: minimum: got -99999999999999999999, want -1",
		`{"path": "a", "lines": 1.5}`:                                "lines: got number, want integer",
		`{"path": "a", "lines": 1e1}`:                                "lines: got number, want integer",
		`{"path": "a", "lines": 1e999}`:                              "lines: got number, want integer",
		`{"path": "a", "lines": "1"}`:                                "lines: got string, want integer",
		`{"path": "a", "lines": null}`:                               "lines: got null, want integer",
		`{"path": ["a"]}`:                                            "path: got array, want string",
		`{"path": {"a": 1}}`:                                         "path: got object, want string",
		`{"path": 1}`:                                                "path: got integer, want string",
		`{"path": "a", "all": 0}`:                                    "all: got integer, want boolean",
		`{"path": "a", "name": "A=B"}`:                               "name: does not match the pattern ^[A-Z]+$",
		`{}`:                                                         `missing property "path"`,
		`{"Path": "a"}`:                                              `missing property "path"; additional property "Path" is not allowed`,
		`{"path": "a", "path": ""}`:                                  "path: minLength: got 0, want 1", // the tool would see the second
		`{"path": "a", "1": 1, "2": 2, "3": 3, "4": 4, "5": 5, "6": 6}`: `additional property "1" is not allowed; additional property "2" is not allowed; additional property "3" is not allowed; ` +
			`additional property "4" is not allowed; additional property "5" is not allowed`,
		`"a"`:              "got string, want object",
		`[]`:               "got array, want object",
		`null`:             "got null, want object",
		`7`:                "got integer, want object",
		`{"path": "a"`:     "it is not JSON: unexpected EOF",
		`{"path": "a"} {}`: "it is not JSON: something follows the first value",
		`{"path": "a"} }`:  "it is not JSON: something follows the first value",
		`{"path": "a", }`:  "it is not JSON: invalid character '}' looking for beginning of object key string",
		``:                 "it is not JSON: EOF",
		`{"path": "a", "` + strings.Repeat("x", 300) + `": 1}`: `additional property "` + strings.Repeat("x", 200-len(`additional property "`)) + "…",
	} {
		var got string
		if err := schema.check(json.RawMessage(in)); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s:\ngot  %s\nwant %s", in, got, want)
		}
	}
}

// TestASchemaHoldsWhatItSays: what an input would not be held to is no schema.
func TestASchemaHoldsWhatItSays(t *testing.T) {
	for want, s := range map[string]m{
		"":                     {},
		`type is "array"`:      {"type": "array"},
		`unknown field "enum"`: {"type": "object", "properties": m{"a": m{"type": "string", "enum": []string{"b"}}}},
		`unknown field "$ref"`: {"$ref": "file:///etc/passwd"},
		`a: b: type is "number"; it is one of object, string, integer and boolean`: {"properties": m{"a": m{"type": "object", "properties": m{"b": m{"type": "number"}}}}},
		`a: type is ""`:     {"properties": m{"a": m{}}},
		"a has no schema":   {"properties": m{"a": nil}},
		"a: pattern: error": {"properties": m{"a": m{"type": "string", "pattern": "("}}},
		"a: type is string, and it has words for type integer": {"properties": m{"a": m{"type": "string", "maximum": 3}}},
		"a: type is boolean, and it has words for type string": {"properties": m{"a": m{"type": "boolean", "minLength": 3}}},
	} {
		_, err := readSchema(proctest.Value(json.Marshal(s))(t))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", s, err)
		}
	}
}
