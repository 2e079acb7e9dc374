package guard

import (
	"strings"

	"github.com/tend-run/tend/internal/lib/lazyregexp"
)

// inURL is a user's password in a URL.
var inURL = lazyregexp.New(`(?i)\b[a-z][a-z0-9+.-]{1,20}://[^\s/:@"'<>\[\]]*:([^\s/@"'<>\[\]]+)@`)

// shapes are what keys of known providers look like. Where an expression has a group, the
// group is the secret. A text without the part, in lower case, has none: looking for that
// is a hundred times as quick.
var shapes = []struct {
	name string
	part string
	re   *lazyregexp.Regexp
}{
	{"key", "k-", lazyregexp.New(`\b(?:sk|pk|rk)-[A-Za-z0-9_-]{16,}`)}, // Anthropic, OpenAI and those who do as they do
	{"key", "_", lazyregexp.New(`\b(?:sk|rk|whsec)_(?:live_|test_)?[A-Za-z0-9]{16,}`)},
	{"key", "vk_", lazyregexp.New(`\bvk_[A-Za-z0-9_-]{16,}`)},
	{"aws key", "a", lazyregexp.New(`\bA(?:KIA|SIA|BIA|CCA)[A-Z0-9]{16}\b`)},
	{"aws key", "aws", lazyregexp.New(`(?i)aws_?secret_?(?:access_?)?key["']?\s*[=:]\s*["']?([A-Za-z0-9/+=]{40})`)},
	{"github token", "gh", lazyregexp.New(`\bgh[pousr]_[A-Za-z0-9]{20,}`)},
	{"github token", "github_pat_", lazyregexp.New(`\bgithub_pat_[A-Za-z0-9_]{20,}`)},
	{"gitlab token", "gl", lazyregexp.New(`\bgl(?:pat|ptt|dt|rt|cbt|ft|soat)-[A-Za-z0-9_.-]{16,}`)},
	{"slack token", "xox", lazyregexp.New(`\bxox[abeoprs]-[A-Za-z0-9-]{10,}`)},
	{"npm token", "npm_", lazyregexp.New(`\bnpm_[A-Za-z0-9]{30,}`)},
	{"pypi token", "pypi-", lazyregexp.New(`\bpypi-[A-Za-z0-9_-]{30,}`)},
	{"google key", "aiza", lazyregexp.New(`\bAIza[A-Za-z0-9_-]{35}`)},
	{"google token", "ya29.", lazyregexp.New(`\bya29\.[A-Za-z0-9_-]{20,}`)},
	{"hugging face token", "hf_", lazyregexp.New(`\bhf_[A-Za-z0-9]{20,}`)},
	{"sendgrid key", "sg.", lazyregexp.New(`\bSG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}`)},
	{"digitalocean token", "_v1_", lazyregexp.New(`\bdo[opr]_v1_[a-f0-9]{32,}`)},
	{"web token", "eyj", lazyregexp.New(`\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*`)},
	{"token", "bearer", lazyregexp.New(`(?i)\bbearer\s+([A-Za-z0-9._~+/-]{16,}=*)`)},
	{"login", "authorization", lazyregexp.New(`(?i)\bauthorization["']?\s*[:=]\s*["']?basic\s+([A-Za-z0-9+/_-]{8,}=*)`)},
	{"password", "://", inURL},
}

// likely returns what looks like a secret that nobody has named.
func likely(s string) (found []span) {
	lower := strings.ToLower(s)
	for _, shape := range shapes {
		if !strings.Contains(lower, shape.part) {
			continue
		}
		for _, m := range shape.re.FindAllStringSubmatchIndex(s, -1) {
			start, end := m[0], m[1]
			if len(m) > 2 {
				start, end = m[2], m[3]
			}
			if !strings.HasPrefix(s[start:end], "[secret") {
				found = append(found, span{start, end, "[secret " + shape.name + "]"})
			}
		}
	}
	return append(found, privateKeys(s)...)
}

const (
	keyBegins = "-----BEGIN "
	keyEnds   = "-----END "
	// maxKey is the most bytes between the two.
	maxKey = 32 << 10
)

// privateKeys returns the keys in PEM, also those that have no end.
func privateKeys(s string) (found []span) {
	for at := 0; ; {
		i := strings.Index(s[at:], keyBegins)
		if i < 0 {
			return found
		}
		start := at + i
		head, _, ok := strings.Cut(s[start+len(keyBegins):], "-----")
		at = start + len(keyBegins)
		if !ok || len(head) > 64 || !strings.HasSuffix(head, "PRIVATE KEY") && !strings.HasSuffix(head, "PRIVATE KEY BLOCK") {
			continue
		}
		end := min(len(s), start+maxKey)
		if tail := strings.Index(s[at:end], keyEnds+head+"-----"); tail >= 0 {
			end = at + tail + len(keyEnds) + len(head) + len("-----")
		}
		found = append(found, span{start, end, "[secret private key]"})
		at = end
	}
}

// openKey returns where a private key begins that has not ended, or len(s).
func openKey(s string) int {
	i := strings.LastIndex(s, keyBegins)
	if i < 0 || len(s)-i > maxKey || strings.Contains(s[i:], keyEnds) && strings.HasSuffix(strings.TrimRight(s[i:], "\r\n"), "-----") {
		return len(s)
	}
	return i
}
