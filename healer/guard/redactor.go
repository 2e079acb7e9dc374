package guard

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/tend-run/tend/internal/lazyregexp"
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
	mu      sync.RWMutex
	known   map[string]bool
	names   []string // of the secrets
	marks   []string // what stands in their places
	loose   *needles // as it is, reversed, in hex: white space, quotes and backslashes left out
	exact   *needles // those of which too little would be left
	base64s *needles
}

// NewRedactor returns a redactor that knows no secret, and finds values that look like one.
func NewRedactor() *Redactor {
	return &Redactor{known: map[string]bool{}, loose: newNeedles(looseText), exact: newNeedles(exactText), base64s: newNeedles(base64Text)}
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
	id := len(r.marks)
	r.names, r.marks = append(r.names, name), append(r.marks, "")
	b := []byte(value)
	reversed := slices.Clone(b)
	slices.Reverse(reversed)
	for _, text := range []string{value, string(reversed), hex.EncodeToString(b)} {
		if stripped := strip(text); len(stripped) >= minSecret {
			r.loose.add(stripped, id)
		} else {
			r.exact.add(text, id)
		}
	}
	for shift := range 3 {
		// The first and the last character of base64 depend on the neighbours, too.
		padded := base64.RawStdEncoding.EncodeToString(append(make([]byte, shift), b...))
		r.base64s.add(padded[(8*shift+5)/6:8*(shift+len(b))/6], id)
	}
	// What stands in a secret's place must not be one.
	for i := range r.marks {
		if r.marks[i] == "" || r.contains(r.marks[i]) {
			r.marks[i] = r.mark(r.names[i], i)
		}
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

// AddFile is AddVariables with a file that [ReadVariables] reads. A missing file has none.
func (r *Redactor) AddFile(path string) error {
	data, err := ReadVariables(path)
	r.AddVariables(data)
	return err
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
	r.mu.RLock()
	defer r.mu.RUnlock()
	spans, _ := r.spans(s)
	if len(spans) == 0 {
		return s
	}
	s = r.render(s, spans)
	// What was taken out may have stood between the parts of another.
	for range 3 {
		if spans, _ = r.exactSpans(s); len(spans) == 0 {
			return s
		}
		s = r.render(s, spans)
	}
	return noMark
}

// span is a part of a text that is hidden. Begun returns the whole words of an incomplete
// text, without secrets: a possible beginning of a secret is left out until it is known.
// Give the text from its beginning each time.
func (r *Redactor) Begun(s string) string {
	r.mu.RLock()
	spans, open := r.spans(s)
	r.mu.RUnlock()
	cut := min(open, openKey(s), strings.LastIndexAny(s, " \n\t")+1)
	n := len(spans)
	for n > 0 && spans[n-1].end > cut {
		n--
		cut = min(cut, spans[n].start)
	}
	return r.render(s[:cut], spans[:n])
}

type span struct {
	start, end int
	mark       string
}

// contains reports whether one of the secrets is in a text.
func (r *Redactor) contains(s string) bool {
	spans, _ := r.exactSpans(s)
	return len(spans) > 0
}

// spans returns what is to be hidden in a text, in order, and from where on the text may
// hold the beginning of more.
func (r *Redactor) spans(s string) ([]span, int) {
	found, open := r.exactSpans(s)
	found = append(found, likely(s)...)
	// Of two that begin at one place, the known secret comes first.
	slices.SortStableFunc(found, func(a, b span) int { return a.start - b.start })
	return merge(found), open
}

func (r *Redactor) exactSpans(s string) (found []span, open int) {
	open = len(s)
	for _, n := range []*needles{r.loose, r.exact, r.base64s} {
		n.each(s, func(start, end, id int) {
			if n == r.base64s {
				if start > 0 && isBase64(s[start-1]) {
					start--
				}
				if end < len(s) && isBase64(s[end]) {
					end++
				}
			}
			mark := noMark
			if id >= 0 {
				mark = r.marks[id]
			}
			found = append(found, span{start, end, mark})
		}, &open)
	}
	slices.SortStableFunc(found, func(a, b span) int { return a.start - b.start })
	return merge(found), open
}

// merge joins those that overlap.
func merge(sorted []span) (out []span) {
	for _, s := range sorted {
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
