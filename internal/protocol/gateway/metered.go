package gateway

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/tend-run/tend/internal/lib/lazyregexp"
)

// question is what the gateway has to know of a request.
type question struct {
	model string
	tools []string // models that its tools name
	most  int64    // tokens that the answer may have; 0: not said
	kind  kind
	body  []byte // what is sent
	// asked: the question for the usage of a stream was added, in place of options, which
	// are nil if there were none.
	asked   bool
	options json.RawMessage
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
// the end: a quarter of the bytes, and for an answer no more than it may have. A provider
// may not keep a bound: each event of a stream counts at least.
func (q *question) guess(asked, answered, events int64) (in, out int64) {
	if q.model == "" || q.kind == free {
		return 0, 0
	}
	if q.kind == answers {
		out = answered / 4
	}
	if q.most > 0 {
		out = min(out, max(q.most, events))
	}
	return asked / 4, out
}

// maxModel is how many bytes the name of a model may have, with rules about it.
const maxModel = 256

// bounds are the names by which a path bounds its answer. Another name means nothing
// there, to a provider that ignores what it does not know.
var bounds = map[string][]string{
	"messages": {"max_tokens"}, "completions": {"max_tokens"},
	"chat/completions": {"max_tokens", "max_completion_tokens"}, "responses": {"max_output_tokens"},
}

var (
	errModel      = errors.New("the body must be a JSON object that says its one model once, as a string of at most 256 bytes without control characters and commas, and not background, for a key with rules about models or tokens")
	errNames      = errors.New("the body has a name that is not of plain letters, digits, _ and -, which readers may take for another; for a key with rules about models or tokens there may be none beside the model, nor in requests, tools and generationConfig")
	errForbidden  = errors.New("this key may not use this model")
	errTool       = errors.New("this key may not use the model that a tool of this request names")
	errMultimodel = errors.New("this request names several models, or what chooses one, such as models, fallbacks or a model in requests that is not that of the path; a key with rules about models or tokens names one")
)

// ask finds out what a request wants. rest is its path behind the provider. strict: it
// must be one that is understood, and [api.check] has been content.
func ask(method, rest string, original []byte, strict bool) (q question, err error) {
	q.body = original
	path := unversioned(rest)
	if method == http.MethodGet || method == http.MethodHead {
		return q, nil
	}
	if m := geminiPath.FindStringSubmatch(path); m != nil {
		q.model, q.kind = m[1], kinds[m[2]]
		if strict && len(q.model) > maxModel {
			return q, errModel
		}
		if len(original) == 0 {
			return q, nil
		}
		plain, err := plainly(original)
		if err == nil {
			q.most = mostOfGemini(plain)
		}
		if !strict {
			return q, nil
		}
		if err == nil {
			q.body = plain
			err = q.readGemini()
		}
		return q, err
	}
	plain, err := plainly(original)
	if err == nil {
		q, err = readQuestion(path, plain)
		q.body = plain
		if countsIfAsked[path] {
			q.askForUsage()
		}
	}
	q.kind = kinds[path]
	if !strict {
		err = nil // which concerns its rules, and it has none
		if !q.asked {
			q.body = original
		}
	}
	return q, err
}

// plainName reports whether a name is one that all readers read alike.
func plainName(name string) bool { return nameOfField.MatchString(name) }

var nameOfField = lazyregexp.New(`^[A-Za-z0-9_-]+$`)

// number is a positive number of JSON, clamped; 0: it is none. Gemini takes one in quotes, too.
func number(value json.RawMessage) int64 {
	var n float64
	if json.Unmarshal(bytes.Trim(value, `"`), &n) != nil || n <= 0 {
		return 0
	}
	return int64(min(n, mostCounted))
}

// isSet reports whether a value of JSON is other than null and false.
func isSet(value json.RawMessage) bool { return string(value) != "null" && string(value) != "false" }

// readQuestion reads a plain body of a request other than Gemini's.
func readQuestion(path string, body []byte) (q question, err error) {
	models, times := 0, int64(1)
	ok := fields(body, func(name string, value json.RawMessage) bool {
		if !plainName(name) {
			err = errNames
			return false
		}
		folded := strings.ToLower(name)
		switch {
		case folded == "model":
			models++
			return name == "model" && json.Unmarshal(value, &q.model) == nil && value[0] == '"' && len(q.model) <= maxModel &&
				!strings.ContainsFunc(q.model, noModel)
		case chooses(folded): // of routers: what is asked if model does not answer
			if isSet(value) {
				err = errMultimodel
			}
		case folded == "tools", folded == "plugins":
			var more []string
			if more, err = modelsOfTools(value); err == nil {
				q.tools = append(q.tools, more...)
			}
		case slices.Contains(bounds[path], folded):
			q.most = max(q.most, number(value))
		case folded == "n", folded == "best_of":
			times = max(times, number(value))
		case folded == "background":
			return !isSet(value)
		case !texts[folded]:
			if len(modelsIn(value, nil)) > 0 {
				err = errMultimodel
			}
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

// readGemini reads a plain body of Gemini's: each model that it names must be the path's.
func (q *question) readGemini() (err error) {
	same := func(value json.RawMessage) bool {
		var name string
		return json.Unmarshal(value, &name) == nil && (name == "" || strings.TrimPrefix(name, "models/") == q.model)
	}
	// inside reads an object whose model may be said, and which has others in it.
	var inside func(object json.RawMessage, deeper int) bool
	inside = func(object json.RawMessage, deeper int) bool {
		return fields(object, func(name string, value json.RawMessage) bool {
			if !plainName(name) {
				err = errNames
				return false
			}
			switch folded := strings.ReplaceAll(strings.ToLower(name), "_", ""); {
			case folded == "requests":
				return deeper > 0 && elements(value, func(one json.RawMessage) bool { return inside(one, deeper-1) })
			case folded == "generatecontentrequest", folded == "generationconfig":
				return !isSet(value) || deeper > 0 && inside(value, deeper-1)
			case folded == "tools":
				var more []string
				more, err = modelsOfTools(value)
				q.tools = append(q.tools, more...)
				return err == nil
			case folded == "model":
				return !isSet(value) || same(value)
			}
			return !chooses(strings.ToLower(name)) || !isSet(value)
		})
	}
	if !inside(q.body, 2) && err == nil {
		err = errMultimodel
	}
	return err
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
