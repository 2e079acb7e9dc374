package gateway

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/tend-run/tend/internal/lib/lazyregexp"
)

// api is what of a provider's API a key with rules about models or tokens may use. All
// of it has been read: a request says its model in the path or the body, and its answer
// says what it has used.
type api struct {
	// posts are paths behind the version, which may be left out.
	posts []string
	// gemini: the paths models/MODEL:METHOD of Gemini's, too.
	gemini bool
	// model is what may follow models/ in a GET.
	model *lazyregexp.Regexp
	// query are the parameters of a query with the values that they may have; none: any.
	query map[string][]string
	// headers are those of a request that it gets from any key, besides commonHeaders.
	headers []string
	// keyIn is the header for the key of a client that showed its own elsewhere.
	keyIn string
}

var (
	oneName  = lazyregexp.New(`^[A-Za-z0-9._-]+$`)
	anyNames = lazyregexp.New(`^[A-Za-z0-9._:@-]+(?:/[A-Za-z0-9._:@-]+){0,2}$`) // routers have VENDOR/MODEL:VARIANT
)

var (
	anthropicAPI = api{
		posts: []string{"messages", "messages/count_tokens", "chat/completions"}, model: oneName, keyIn: "X-Api-Key",
		query:   map[string][]string{"beta": {"true"}, "limit": nil, "before_id": nil, "after_id": nil},
		headers: []string{"Anthropic-Version", "Anthropic-Beta", "Anthropic-Dangerous-Direct-Browser-Access"},
	}
	openaiAPI = api{
		posts: []string{"chat/completions", "completions", "responses", "embeddings", "moderations"}, model: anyNames, keyIn: "Authorization",
		headers: []string{"Openai-Organization", "Openai-Project", "Openai-Beta", "X-Client-Request-Id"},
	}
	geminiAPI = api{
		gemini: true, model: oneName, keyIn: "X-Goog-Api-Key",
		query: map[string][]string{"alt": {"sse", "json"}, "pageSize": nil, "pageToken": nil},
		headers: []string{
			"X-Goog-Api-Client", "X-Goog-Upload-Protocol", "X-Goog-Upload-Command", "X-Goog-Upload-Offset", "X-Goog-Upload-File-Name",
			"X-Goog-Upload-Header-Content-Length", "X-Goog-Upload-Header-Content-Type",
		},
	}
	// otherAPI is that of a provider with another name, which may speak like any of them.
	otherAPI = api{
		posts: append(slices.Clone(openaiAPI.posts), "messages", "messages/count_tokens"), gemini: true, model: anyNames, keyIn: "Authorization",
		query: map[string][]string{"alt": {"sse", "json"}, "beta": {"true"}, "api-version": nil, "limit": nil, "before_id": nil,
			"after_id": nil, "pageSize": nil, "pageToken": nil},
		headers: slices.Concat(anthropicAPI.headers, openaiAPI.headers, geminiAPI.headers),
	}
)

// commonHeaders are the headers of a request that each provider gets. A header that is
// unknown may choose another model (X-Portkey-Config), another method, a piece of an
// answer in which the key cannot be found (Range), or tell of the client.
var commonHeaders = []string{"Accept", "Content-Type", "Content-Encoding", "User-Agent", "Idempotency-Key"}

// apiOf is the API of a provider, by its name.
func apiOf(provider string) *api {
	switch provider {
	case "anthropic":
		return &anthropicAPI
	case "openai":
		return &openaiAPI
	case "gemini":
		return &geminiAPI
	}
	return &otherAPI
}

// geminiMethods are what may be done with a model at Gemini.
const geminiMethods = `generateContent|streamGenerateContent|countTokens|embedContent|batchEmbedContents`

// geminiPath is MODEL and method of a request to Gemini.
var geminiPath = lazyregexp.New(`^models/([A-Za-z0-9._-]+):(` + geminiMethods + `)$`)

var errBodyOfGet = errors.New("a GET has no body, for a key with rules about models or tokens; leave it out")

// pathError: what a path does with a model cannot be known.
type pathError struct {
	provider string
	api      *api
}

func (e *pathError) Error() string {
	may := slices.Clone(e.api.posts)
	if e.api.gemini {
		may = append(may, "models/MODEL:METHOD with "+strings.ReplaceAll(geminiMethods, "|", ", "))
	}
	return fmt.Sprintf("this key has rules about models or tokens, and for this path they cannot be kept; of %s it may use POST %s, and GET models and models/MODEL", e.provider, strings.Join(may, ", "))
}

// queryError: a parameter may have the request read otherwise.
type queryError struct {
	name string
	api  *api
}

func (e *queryError) Error() string {
	may := "none"
	if len(e.api.query) > 0 {
		var all []string
		for name, values := range e.api.query {
			if len(values) > 0 {
				name += "=" + strings.Join(values, " or ")
			}
			all = append(all, name)
		}
		slices.Sort(all)
		may = strings.Join(all, ", ")
	}
	return fmt.Sprintf("the query parameter %.40q, with this value or more than once, is not passed on for a key with rules about models or tokens; leave it out (allowed for this provider: %s)", e.name, may)
}

// check refuses a request of a key with rules that is none of those that are known. rest
// is its path behind the provider, and query what the provider would get.
func (a *api) check(provider, method, rest string, query url.Values, body []byte) error {
	path := unversioned(rest)
	switch method {
	case http.MethodGet, http.MethodHead:
		if model, ok := strings.CutPrefix(path, "models/"); path != "models" && !(ok && a.model.MatchString(model)) {
			return &pathError{provider, a}
		}
		if len(body) > 0 {
			return errBodyOfGet
		}
	case http.MethodPost:
		if !slices.Contains(a.posts, path) && !(a.gemini && geminiPath.MatchString(path)) {
			return &pathError{provider, a}
		}
	default:
		return &pathError{provider, a}
	}
	for name, values := range query {
		may, ok := a.query[name]
		if !ok || len(values) != 1 || len(may) > 0 && !slices.Contains(may, values[0]) {
			return &queryError{name, a}
		}
	}
	return nil
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
