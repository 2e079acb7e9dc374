package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"
)

// What is passed on for a key with rules about models or tokens is what every reader takes for
// the same: a provider may read JSON by other rules than this server, and a router in front of
// models takes a model from the query, too.

// passedQuery are the parameters of a query that are passed on for such a key: forms of answers,
// versions, and pages of lists.
var passedQuery = map[string]bool{
	"key": true, "path": true, "alt": true, "beta": true, "api-version": true,
	"limit": true, "order": true, "after": true, "before": true, "after_id": true, "before_id": true, "pageSize": true, "pageToken": true,
}

// checkQuery refuses a query with other parameters.
func checkQuery(u *url.URL) error {
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return errors.New("the query cannot be read, and this key has rules about what is asked for; write it as name=value&…")
	}
	for name := range query {
		if !passedQuery[name] {
			return fmt.Errorf("this key has rules about models or tokens, and the parameter %.80q of the query is not passed on; leave it out", name)
		}
	}
	return nil
}

// maxDepth is how deep a body may be nested.
const maxDepth = 128

var (
	errTwice = errors.New("a name is there twice in the body, also if case is not looked at, and this key has rules about what is in it; write each once")
	errNames = errors.New("a name in the body has a letter that some readers take for s or k; write it in ASCII")
	errDepth = fmt.Errorf("the body is nested deeper than %d, or is no JSON in UTF-8", maxDepth)
)

// checkNames refuses a body that two readers of JSON may take for different ones: a name twice in
// one object, or names that are the same to a reader that does not look at case. Deeper than
// the fields of a request and of its lists only exact doubles count: a schema may have id
// and ID.
func checkNames(body []byte) error {
	if !utf8.Valid(body) {
		return errDepth
	}
	d := json.NewDecoder(bytes.NewReader(body))
	type level struct {
		names map[string]bool // nil: an array
		value bool            // the next token is the value of a name
	}
	var open []*level
	for {
		t, err := d.Token()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return nil // what reads the fields says so
		}
		var in *level
		if len(open) > 0 {
			in = open[len(open)-1]
		}
		if name, ok := t.(string); ok && in != nil && in.names != nil && !in.value {
			if strings.ContainsAny(name, "\u017f\u212a") {
				return errNames
			}
			if len(open) <= foldedDepth {
				name = fold(name)
			}
			if in.names[name] {
				return errTwice
			}
			in.names[name], in.value = true, true
			continue
		}
		if in != nil {
			in.value = false
		}
		switch t {
		case json.Delim('{'):
			open = append(open, &level{names: map[string]bool{}})
		case json.Delim('['):
			open = append(open, &level{})
		case json.Delim('}'), json.Delim(']'):
			open = open[:len(open)-1]
		}
		if len(open) > maxDepth {
			return errDepth
		}
	}
}

// foldedDepth is that of the fields of what is in a list of a request: {"tools": [{"model": …}]}.
const foldedDepth = 3

// fold is a name for readers that do not look at case, in lower case where it is ASCII.
func fold(name string) string {
	return strings.Map(func(r rune) rune {
		least := r
		for next := unicode.SimpleFold(r); next != r; next = unicode.SimpleFold(next) {
			least = min(least, next)
		}
		return unicode.ToLower(least)
	}, name)
}

// checkModels refuses a body of Gemini's that names another model than the path, for the whole
// or for one of its requests.
func checkModels(body []byte, model string) (err error) {
	other := func(value json.RawMessage) bool {
		var name string
		return isSet(value) && (json.Unmarshal(value, &name) != nil || strings.TrimPrefix(name, "models/") != model)
	}
	ok := fields(body, func(name string, value json.RawMessage) bool {
		switch fold(name) {
		case "model":
			if other(value) {
				err = errMultimodel
			}
		case "requests":
			var all []json.RawMessage
			if json.Unmarshal(value, &all) != nil {
				return false
			}
			for _, one := range all {
				if !fields(one, func(name string, value json.RawMessage) bool { return fold(name) != "model" || !other(value) }) {
					err = errMultimodel
				}
			}
		}
		return err == nil
	})
	if err == nil && !ok && len(body) > 0 {
		err = errModel
	}
	return err
}

// unread reports whether a request has a body that nobody looks at.
func unread(method string, body []byte) bool {
	return (method == http.MethodGet || method == http.MethodHead) && len(body) > 0
}
