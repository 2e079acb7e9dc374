package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"regexp"
	"strings"
)

// question is what the gateway has to know of a request.
type question struct {
	model string
	most  int64 // tokens that the answer may have; 0: not said
}

// metered are the paths of requests that say their model, and whose answers say what
// they have used: behind the version, which may be left out.
var metered = map[string]bool{
	"messages": true, "messages/count_tokens": true, // Anthropic
	"chat/completions": true, "completions": true, "responses": true, "embeddings": true, "moderations": true, // OpenAI
}

// geminiPath is MODEL and method of a request to Gemini.
var geminiPath = regexp.MustCompile(`^models/([A-Za-z0-9._-]+):(generateContent|streamGenerateContent|countTokens|embedContent|batchEmbedContents)$`)

var (
	errUnmetered  = errors.New("this key has rules about models or tokens, and for this path they cannot be kept; models can be listed, and asked for messages, completions, responses and embeddings")
	errModel      = errors.New("the body must be a JSON object that says its model once, as a string, and not background, for a key with rules about models or tokens")
	errForbidden  = errors.New("this key may not use this model")
	errMultimodel = errors.New("this request names several models")
)

// ask finds out what a request wants. rest is its path behind the provider. strict: it
// must be one that is understood.
func ask(method, rest string, body []byte, strict bool) (q question, err error) {
	path := unversioned(rest)
	if method == http.MethodGet || method == http.MethodHead {
		if strict && path != "models" && !strings.HasPrefix(path, "models/") {
			return q, errUnmetered
		}
		return q, nil
	}
	if m := geminiPath.FindStringSubmatch(path); m != nil {
		q.model = m[1]
		if m[2] == "batchEmbedContents" && strict && bytes.Contains(body, []byte(`"model"`)) && !onlyModel(body, m[1]) {
			return q, errMultimodel
		}
		return q, nil
	}
	if strict && (method != http.MethodPost || !metered[path]) {
		return q, errUnmetered
	}
	q, err = readQuestion(body)
	if !strict {
		return q, nil
	}
	return q, err
}

// onlyModel reports whether each model in a body of Gemini's is this one.
func onlyModel(body []byte, model string) bool {
	var b struct {
		Requests []struct {
			Model string `json:"model"`
		} `json:"requests"`
	}
	if json.Unmarshal(body, &b) != nil {
		return false
	}
	for _, r := range b.Requests {
		if name := strings.TrimPrefix(r.Model, "models/"); name != "" && name != model {
			return false
		}
	}
	return true
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

// readQuestion reads the names of a JSON object one by one: encoding/json takes names
// in any case for the same, and the last of several, which a provider may not.
func readQuestion(body []byte) (q question, err error) {
	d := json.NewDecoder(bytes.NewReader(body))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return q, errModel
	}
	models := 0
	for d.More() {
		t, err := d.Token()
		name, ok := t.(string)
		if err != nil || !ok {
			return q, errModel
		}
		var value json.RawMessage
		if d.Decode(&value) != nil {
			return q, errModel
		}
		switch strings.ToLower(name) {
		case "model":
			models++
			if name != "model" || json.Unmarshal(value, &q.model) != nil || value[0] != '"' {
				return q, errModel
			}
		case "max_tokens", "max_completion_tokens", "max_output_tokens":
			var n float64
			if json.Unmarshal(value, &n) == nil && n > 0 {
				q.most = max(q.most, int64(min(n, mostCounted)))
			}
		case "background":
			if string(value) != "false" && string(value) != "null" {
				return q, errModel
			}
		}
	}
	if _, err := d.Token(); err != nil {
		return q, errModel
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) || models != 1 || q.model == "" {
		return q, errModel
	}
	return q, nil
}
