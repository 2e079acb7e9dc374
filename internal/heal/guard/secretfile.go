package guard

import (
	"encoding/base64"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tend-run/tend/internal/lib/lazyregexp"
)

// keysAndLogins are the names of files and directories that keep them.
var keysAndLogins = []string{
	".ssh", ".aws", ".gnupg", "*.pem", "*.key", "*.p12", "*.pfx", "*.jks",
	"id_rsa", "id_dsa", "id_ecdsa", "id_ed25519",
	".netrc", "_netrc", ".npmrc", ".pypirc", ".pgpass", ".git-credentials", ".docker/config.json",
}

// original returns the name of the file of which this is the name of a copy, as editors and people
// make them: .env of .env~ and #.env#, .npmrc of .npmrc.swp. base is in lower case.
func original(base string) string {
	for {
		name := strings.TrimSuffix(base, "~")
		if inner, ok := strings.CutPrefix(name, "#"); ok {
			name = strings.TrimSuffix(inner, "#")
		}
		switch ext := path.Ext(name); ext {
		case ".bak", ".backup", ".old", ".orig", ".save", ".swp", ".swo", ".swn":
			name = strings.TrimSuffix(name, ext)
			if strings.HasPrefix(name, ".id_") { // vim puts a point before it
				name = name[1:]
			}
		}
		if name == base || name == "" {
			return base
		}
		base = name
	}
}

// IsSecret reports whether a path is that of a file of variables, or of keys and logins. No
// version of it is shown to a model.
func IsSecret(rel string) bool {
	if IsEnv(path.Base(rel)) {
		return true
	}
	// The rules of a guard say the same; this is asked of each file of a history.
	rel = strings.ToLower(rel)
	for rest := path.Join(path.Dir(rel), original(path.Base(rel))) + "/"; rest != ""; {
		part, after, _ := strings.Cut(rest, "/")
		for _, name := range keysAndLogins {
			if end, ok := strings.CutPrefix(name, "*"); ok && strings.HasSuffix(part, end) || !ok && strings.HasPrefix(rest, name+"/") {
				return true
			}
		}
		rest = after
	}
	return false
}

var (
	login    = lazyregexp.New(`["']?([A-Za-z0-9_./:@-]*[A-Za-z0-9_])["']?\s*[=:]\s*["']?([^\s"',]+)`)
	netLogin = lazyregexp.New(`(?i)\b(password|account)\s+(\S+)`)
	keyLine  = lazyregexp.New(`^[A-Za-z0-9+/=_-]{20,}$`)
)

// chunk is how much of a key that is no text is a secret of its own: a part may be shown.
const chunk = 32

// AddFile makes secrets of those in a secret file: the values of a file of variables, the
// passwords and tokens of logins, the lines of keys.
func (r *Redactor) AddFile(name string, data []byte) {
	base := path.Base(name)
	if IsEnv(base) {
		r.AddVariables(data)
		return
	}
	text := string(data)
	if !utf8.Valid(data) || strings.IndexByte(text, 0) >= 0 {
		for part := range slices.Chunk(data, chunk) {
			r.AddSecret(base, string(part))
		}
		return
	}
	for _, s := range likely(text) {
		r.AddSecret(base, text[s.start:s.end])
	}
	for _, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if keyLine.MatchString(line) {
			r.AddSecret(base, line)
		}
		if i := strings.LastIndexByte(line, ':'); base == ".pgpass" && i >= 0 && !strings.HasPrefix(line, "#") {
			r.AddSecret(base, line[i+1:])
		}
		for _, m := range netLogin.FindAllStringSubmatch(line, -1) {
			r.AddSecret(base, m[2])
		}
		for _, m := range login.FindAllStringSubmatch(line, -1) {
			if !looksSecret(m[1], m[2]) {
				continue
			}
			r.AddSecret(base, m[2])
			if plain, err := base64.StdEncoding.DecodeString(m[2]); err == nil {
				_, password, _ := strings.Cut(string(plain), ":")
				r.AddSecret(base, password)
			}
		}
	}
}
