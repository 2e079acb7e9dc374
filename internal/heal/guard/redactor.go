package guard

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/tend-run/tend/internal/lib/lazyregexp"
)

const (
	// minSecret is the least bytes of a secret: shorter values would be found
	// everywhere.
	minSecret = 6
	// maxSecret is the most bytes of a secret that are looked for, and of a file of
	// variables.
	maxSecret = 64 << 10
)

// Redactor removes secrets from texts. Its methods may be called from several
// goroutines.
type Redactor struct {
	mu     sync.RWMutex
	known  map[string]bool
	names  []string       // of the secrets
	marks  []string       // what stands in their places
	linked bool           // marks and automata are made
	loose  *automaton     // of secrets in the form of [loose], also reversed
	bare   *automaton     // in the form of [bare], where too little would be left
	bares  [][]bareSecret // those of bare
	looks  []kind         // the kinds of escapes that a secret itself looks like
}

// bareSecret is what must stand where one was found without its white space.
type bareSecret struct {
	text []byte
	id   int // of the secret
}

// NewRedactor returns a redactor that knows no secret, and finds values that look like one.
func NewRedactor() *Redactor {
	return &Redactor{known: map[string]bool{}, loose: newAutomaton(), bare: newAutomaton()}
}

// AddSecret makes a value a secret. "[secret NAME]" replaces it. A value of less than 6
// bytes is ignored. Each long line of a value of several lines, and the password in a URL,
// are secrets too.
func (r *Redactor) AddSecret(name, value string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	value = strings.TrimSpace(value)
	r.add(name, value)
	if lines := strings.Fields(value); len(lines) > 1 && strings.Contains(value, "\n") {
		for _, line := range lines {
			if len(line) >= 20 {
				r.add(name, line)
			}
		}
	}
	for _, password := range passwords(value) {
		r.add(name, password)
	}
}

func (r *Redactor) add(name, value string) {
	if len(value) < minSecret || len(value) > maxSecret || r.known[value] {
		return
	}
	r.known[value] = true
	id := len(r.names)
	r.names, r.linked = append(r.names, name), false
	b := []byte(value)
	reversed := slices.Clone(b)
	slices.Reverse(reversed)
	for _, text := range [][]byte{b, reversed} {
		if k := new(view).unescape(&view{text: text}, allKinds, false); k != 0 && !slices.Contains(r.looks, k) {
			r.looks = append(r.looks, k)
		}
		if form := loose(text); len(form) >= minSecret {
			r.loose.add(form, id)
			continue
		}
		k := r.bare.add(bare(text), len(r.bares))
		if k == len(r.bares) {
			r.bares = append(r.bares, nil)
		}
		r.bares[k] = append(r.bares[k], bareSecret{text, id})
	}
}

// ready makes what is searched with, if there are new secrets, and locks it for reading.
func (r *Redactor) ready() {
	for r.mu.RLock(); !r.linked; r.mu.RLock() {
		r.mu.RUnlock()
		r.mu.Lock()
		r.loose.link()
		r.bare.link()
		r.marks = make([]string, len(r.names))
		for i, name := range r.names { // what stands in a secret's place must not be one
			r.marks[i] = r.mark(name, i)
		}
		r.linked = true
		r.mu.Unlock()
	}
}

func (r *Redactor) mark(name string, i int) string {
	name = strings.Map(func(c rune) rune {
		if c < 0x21 || c > 0x7e || strings.ContainsRune("[]", c) {
			return '_'
		}
		return c
	}, name[:min(len(name), 64)])
	for _, m := range []string{"[secret " + name + "]", fmt.Sprintf("[hidden %d]", i)} {
		if !r.contains(m) {
			return m
		}
	}
	return noMark
}

// noMark is shorter than a secret, and so is none.
const noMark = "[***]"

// passwords returns those in the URLs of a value.
func passwords(value string) (out []string) {
	for _, m := range inURL.FindAllStringSubmatch(value, -1) {
		out = append(out, m[1])
		if plain, err := url.PathUnescape(m[1]); err == nil {
			out = append(out, plain)
		}
	}
	return out
}

var (
	secretName = lazyregexp.New(`(?i)(^|_|-|\.)(keys?|pass|pw|pwd|pin|salt|auth|cred|dsn|sig|jwt|cert)($|_|-|\.)|key$|token|secret|passw|passphrase|credential|private|cookie|session|signature|signing|webhook|connection|oauth|apikey|_url$|_uri$`)
	harmless   = lazyregexp.New(`(?i)^(PWD|OLDPWD|SSH_AUTH_SOCK|XDG_SESSION_.*|DBUS_SESSION_.*|DESKTOP_SESSION|.*AUTHOR.*)$`)
	plainWord  = lazyregexp.New(`(?i)^(development|production|staging|testing|localhost|default|enabled|disabled|verbose|warning|silent|\d+(\.\d+){0,3}|https?://(localhost|127\.0\.0\.1)(:\d+)?/?)$`)
)

func looksSecret(name, value string) bool {
	return secretName.MatchString(name) && !harmless.MatchString(name) && !plainWord.MatchString(value)
}

// Secret reports whether a variable of an environment probably has a secret: by its name,
// or by a password in a URL.
func Secret(name, value string) bool {
	return looksSecret(name, value) || len(passwords(value)) > 0 || len(likely(value)) > 0
}

// AddEnv makes secrets of the values in an environment whose names look like secrets, and
// of passwords in URLs.
func (r *Redactor) AddEnv(env map[string]string) {
	for name, value := range env {
		if looksSecret(name, value) {
			r.AddSecret(name, value)
			continue
		}
		for _, password := range passwords(value) {
			r.AddSecret(name, password)
		}
	}
}

// ReadVariables reads a file of variables (.env). A missing file is empty. A file that is
// not regular, or has more than 64 KiB, is an error.
func ReadVariables(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|waitForNobody, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxSecret {
		return nil, fmt.Errorf("%s is not a file of variables: it is no regular file, or has more than 64 KiB", path)
	}
	return io.ReadAll(io.LimitReader(f, maxSecret))
}

// AddVariables makes secrets of all values in the text of a file of variables, also those
// in comments, except plain words such as "production".
func (r *Redactor) AddVariables(data []byte) {
	for _, v := range variables(strings.Split(string(data), "\n")) {
		for _, value := range v.readings() {
			if !plainWord.MatchString(strings.TrimSpace(value)) || secretName.MatchString(v.name) && !strings.HasPrefix(value, "http") {
				r.AddSecret(v.name, value)
			}
		}
	}
}

// Text returns a text without secrets.
func (r *Redactor) Text(s string) string {
	r.ready()
	defer r.mu.RUnlock()
	spans, _ := r.spans(s, false)
	if len(spans) == 0 {
		return s
	}
	s = r.render(s, spans)
	// What was taken out may have stood between the parts of another.
	for range 3 {
		if spans, _ = r.secrets(s, false); len(spans) == 0 {
			return s
		}
		s = r.render(s, spans)
	}
	return noMark
}

// Begun returns the whole words of an incomplete text, without secrets: a possible beginning
// of a secret is left out until it is known. Give the text from its beginning each time.
func (r *Redactor) Begun(s string) string {
	r.ready()
	defer r.mu.RUnlock()
	spans, open := r.spans(s, true)
	cut := min(open, openKey(s), strings.LastIndexAny(s, " \n\t")+1)
	n := len(spans)
	for n > 0 && spans[n-1].end > cut {
		n--
		cut = min(cut, spans[n].start)
	}
	return r.render(s[:cut], spans[:n])
}

// span is a part of a text that is hidden.
type span struct {
	start, end int
	mark       string
}

// contains reports whether one of the secrets is in a text.
func (r *Redactor) contains(s string) bool {
	spans, _ := r.secrets(s, false)
	return len(spans) > 0
}

// spans returns what is to be hidden in a text, in order, and, if more of it may come, from
// where on it may hold the beginning of more.
func (r *Redactor) spans(s string, partial bool) ([]span, int) {
	found, open := r.secrets(s, partial)
	// Of two that begin at one place, the known secret comes first.
	return merge(append(found, likely(s)...)), open
}

// secrets are the spans of those that are known.
func (r *Redactor) secrets(s string, partial bool) ([]span, int) {
	f := finder{r: r, size: int32(len(s)), open: int32(len(s)), scratch: scratch{partial: partial}}
	if !r.loose.empty() || !r.bare.empty() {
		f.text(s)
	}
	return merge(f.found), int(f.open)
}

// merge sorts spans, the longer of two that begin at one place first, and joins those that
// overlap.
func merge(all []span) (out []span) {
	slices.SortStableFunc(all, func(a, b span) int { return cmp.Or(a.start-b.start, b.end-a.end) })
	for _, s := range all {
		if n := len(out) - 1; n >= 0 && s.start < out[n].end {
			out[n].end = max(out[n].end, s.end)
			continue
		}
		out = append(out, s)
	}
	return out
}

func (r *Redactor) render(s string, spans []span) string {
	var b strings.Builder
	at := 0
	for _, sp := range spans {
		b.WriteString(s[at:sp.start])
		b.WriteString(sp.mark)
		at = sp.end
	}
	b.WriteString(s[at:])
	return b.String()
}
