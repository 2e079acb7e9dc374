package gateway

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/tend-run/tend/internal/lazyregexp"
)

// question is what the gateway has to know of a request.
type question struct {
	model string
	tools []string // models that its tools name
	most  int64    // tokens that the answer may have; 0: not said
	kind  kind
}

// kind is what a request costs.
type kind int

const (
	answers kind = iota // the question, and an answer of the model
	embeds              // the question
	free                // nothing: it counts, or is judged
)

// kinds of paths, and of methods of Gemini's, other than answers.
var kinds = map[string]kind{
	"embeddings": embeds, "embedContent": embeds, "batchEmbedContents": embeds,
	"messages/count_tokens": free, "moderations": free, "countTokens": free,
}

const (
	// mostAsked and usualAnswer are how many tokens a request in flight is thought to
	// use for its question at most, and for an answer of which it says no bound.
	mostAsked   = 32 << 10
	usualAnswer = 4096
)

// reserved is how many tokens a request with a body of size bytes may use, until it is known.
func (q *question) reserved(size int) int64 {
	asked := min(int64(size)/4, mostAsked)
	switch {
	case q.model == "" || q.kind == free:
		return 0
	case q.kind == embeds:
		return asked
	}
	return asked + cmp.Or(q.most, usualAnswer)
}

// guess is what a request has used of which the provider has counted nothing, or not to
// the end: a quarter of the bytes, and for an answer no more than it may have.
func (q *question) guess(asked, answered int64) (in, out int64) {
	if q.model == "" || q.kind == free {
		return 0, 0
	}
	if q.kind == answers {
		out = answered / 4
	}
	if q.most > 0 {
		out = min(out, q.most)
	}
	return asked / 4, out
}

// maxModel is how many bytes the name of a model may have, with rules about it.
const maxModel = 256

// metered are the paths of requests that say their model, and whose answers say what
// they have used: behind the version, which may be left out.
var metered = map[string]bool{
	"messages": true, "messages/count_tokens": true, // Anthropic
	"chat/completions": true, "completions": true, "responses": true, "embeddings": true, "moderations": true, // OpenAI
}

// geminiPath is MODEL and method of a request to Gemini.
var geminiPath = lazyregexp.New(`^models/([A-Za-z0-9._-]+):(generateContent|streamGenerateContent|countTokens|embedContent|batchEmbedContents)$`)

var (
	errUnmetered  = errors.New("this key has rules about models or tokens, and for this path they cannot be kept; models can be listed, and asked for messages, completions, responses and embeddings")
	errModel      = errors.New("the body must be a JSON object that says its model once, as a string of at most 256 bytes, and not background, for a key with rules about models or tokens")
	errForbidden  = errors.New("this key may not use this model")
	errTool       = errors.New("this key may not use the model that a tool of this request names")
	errMultimodel = errors.New("this request names several models")
)

// ask finds out what a request wants. rest is its path behind the provider. strict: it
// must be one that is understood.
func ask(method, rest string, body []byte, strict bool) (q question, err error) {
	path := unversioned(rest)
	if strict {
		if unread(method, body) {
			return q, errUnmetered
		}
		if err := checkNames(body); err != nil {
			return q, err
		}
	}
	if method == http.MethodGet || method == http.MethodHead {
		if strict && path != "models" && !strings.HasPrefix(path, "models/") {
			return q, errUnmetered
		}
		return q, nil
	}
	if m := geminiPath.FindStringSubmatch(path); m != nil {
		q.model, q.most, q.kind = m[1], mostOfGemini(body), kinds[m[2]]
		if len(q.model) > maxModel && strict {
			return q, errModel
		}
		if strict {
			return q, checkModels(body, m[1])
		}
		return q, nil
	}
	if strict && (method != http.MethodPost || !metered[path]) {
		return q, errUnmetered
	}
	q, err = readQuestion(body, bounding[path])
	q.kind = kinds[path]
	if !strict {
		return q, nil
	}
	return q, err
}

// unversioned is a path without v1 or v1beta before it.
func unversioned(path string) string {
	for _, v := range []string{"v1/", "v1beta/"} {
		if rest, ok := strings.CutPrefix(path, v); ok {
			return rest
		}
	}
	return path
}

// fields calls f with each name and value of a JSON object, one by one: encoding/json
// takes names in any case for the same, and the last of several, which a provider may
// not. It reports whether the text is one object, and f was content with all.
func fields(object []byte, f func(name string, value json.RawMessage) bool) bool {
	d := json.NewDecoder(bytes.NewReader(object))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return false
	}
	for d.More() {
		t, err := d.Token()
		name, ok := t.(string)
		var value json.RawMessage
		if err != nil || !ok || d.Decode(&value) != nil || !f(name, value) {
			return false
		}
	}
	if _, err := d.Token(); err != nil {
		return false
	}
	_, err := d.Token()
	return errors.Is(err, io.EOF)
}

// number is a positive number of JSON, clamped; 0: it is none.
func number(value json.RawMessage) int64 {
	var n float64
	if json.Unmarshal(value, &n) != nil || n <= 0 {
		return 0
	}
	return int64(min(n, mostCounted))
}

// isSet reports whether a value of JSON is other than null and false.
func isSet(value json.RawMessage) bool { return string(value) != "null" && string(value) != "false" }

// bounding are the names that bound an answer, by the path that has them. Elsewhere a provider
// overlooks them.
var bounding = map[string][]string{
	"messages": {"max_tokens"}, "completions": {"max_tokens"}, "chat/completions": {"max_tokens", "max_completion_tokens"}, "responses": {"max_output_tokens"},
}

// readQuestion reads the body of a request other than Gemini's. bounds are the names of fields
// that bound the answer.
func readQuestion(body []byte, bounds []string) (q question, err error) {
	models, times := 0, int64(1)
	ok := fields(body, func(name string, value json.RawMessage) bool {
		folded := fold(name)
		if slices.Contains(bounds, folded) {
			q.most = max(q.most, number(value))
		}
		if strings.HasSuffix(folded, "fallbacks") && isSet(value) { // of routers, as models
			err = errMultimodel
		}
		switch folded {
		case "model":
			models++
			return name == "model" && json.Unmarshal(value, &q.model) == nil && value[0] == '"' && len(q.model) <= maxModel
		case "models": // of routers: what is asked if model does not answer
			if isSet(value) {
				err = errMultimodel
			}
		case "tools":
			q.tools = append(q.tools, modelsOfTools(value)...)
		case "n", "best_of":
			times = max(times, number(value))
		case "background":
			return !isSet(value)
		}
		return err == nil
	})
	q.most = many(q.most, times)
	switch {
	case err != nil:
		return q, err
	case !ok || models != 1 || q.model == "":
		return q, errModel
	}
	return q, nil
}

// modelsOfTools are the models that tools have their work done by, such as one that makes
// images. What a tool's own arguments are called is deeper.
func modelsOfTools(tools json.RawMessage) (models []string) {
	var all []json.RawMessage
	if json.Unmarshal(tools, &all) != nil {
		return nil
	}
	for _, one := range all {
		fields(one, func(name string, value json.RawMessage) bool {
			if fold(name) == "model" && isSet(value) {
				var model string
				if json.Unmarshal(value, &model) != nil {
					model = string(value) // which no list has
				}
				models = append(models, model)
			}
			return true
		})
	}
	return models
}

// mostOfGemini is how many tokens an answer of Gemini's may have; 0: not said.
func mostOfGemini(body []byte) (most int64) {
	times := int64(1)
	fields(body, func(name string, value json.RawMessage) bool {
		if name == "generationConfig" || name == "generation_config" {
			fields(value, func(name string, value json.RawMessage) bool {
				switch name {
				case "maxOutputTokens", "max_output_tokens":
					most = max(most, number(value))
				case "candidateCount", "candidate_count":
					times = max(times, number(value))
				}
				return true
			})
		}
		return true
	})
	return many(most, times)
}

// many is most tokens as often as times, both at most mostCounted.
func many(most, times int64) int64 {
	if most > mostCounted/times {
		return mostCounted
	}
	return most * times
}
