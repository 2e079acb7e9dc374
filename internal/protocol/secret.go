package protocol

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"

	"github.com/tend-run/tend/internal/lib/atomicfile"
)

// NoteSecure is set on a sandbox (driver.Spec.Notes) that always needs its own token, even
// if the server needs none.
const NoteSecure = "e2b.secure"

// Notes on a sandbox that say how its ports are served.
const (
	// NoteMaskHost is the host name that programs inside see instead of the one that was
	// called; MaskPort in it stands for the port.
	NoteMaskHost = "ports.mask-host"
	// NoteHTTPSPorts names the ports on which programs inside speak TLS, with commas
	// between them.
	NoteHTTPSPorts = "ports.https"

	MaskPort = "${PORT}"
)

// Secret creates the tokens of sandboxes. Each token is derived from one secret and the
// token's purpose, so nothing is stored for a sandbox, a token is valid as long as the
// secret, and a copy of a sandbox has different tokens. A nil Secret creates tokens
// that match nothing.
type Secret struct{ key []byte }

// OpenSecret reads the secret from a file, or makes one there (0600). A power loss just
// after that may invalidate earlier tokens.
func OpenSecret(path string) (*Secret, error) {
	key, err := atomicfile.Read(path, 1<<10)
	if err == nil && len(key) == sha256.Size {
		return &Secret{key}, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("secret of the sandboxes' tokens: %w", err)
	}
	if err == nil {
		return nil, fmt.Errorf("secret of the sandboxes' tokens: %s is damaged; remove it, which makes all tokens of before void", path)
	}
	s := NewSecret()
	if err := atomicfile.File(path, s.key, 0o600); err != nil {
		return nil, fmt.Errorf("keep the secret of the sandboxes' tokens: %w", err)
	}
	return s, nil
}

// NewSecret returns a new random secret.
func NewSecret() *Secret {
	key := make([]byte, sha256.Size)
	rand.Read(key) // never fails: crypto/rand ends the program instead
	return &Secret{key}
}

// SandboxToken lets its holder use one sandbox, as envd's X-Access-Token.
func (s *Secret) SandboxToken(id string) Token {
	if s == nil {
		return ""
	}
	return Token(sandboxToken + s.Sign("sandbox", id))
}

// Accepted are the tokens of which a request for a sandbox has to show one as its access token; none: it needs none. The
// sandbox has its own, and the server's is good for all. Without a token of the server, only a sandbox that was made so
// ([NoteSecure]) needs its own; without a secret, nothing matches that.
func (s *Secret) Accepted(server Token, id string, secure bool) (tokens []Token) {
	if server.Set() {
		tokens = append(tokens, server)
	}
	if len(tokens) > 0 || secure {
		tokens = append(tokens, s.SandboxToken(id))
	}
	return tokens
}

// TrafficToken lets its holder reach the ports of a sandbox that are not public.
func (s *Secret) TrafficToken(id string) Token {
	if s == nil {
		return ""
	}
	return Token("tst_" + s.Sign("traffic", id))
}

// Sign returns a signature of fields for a purpose, in 64 letters. Signatures of one
// purpose are no good for another. Compare them with [Token.Matches].
func (s *Secret) Sign(purpose string, fields ...string) string {
	if s == nil {
		return ""
	}
	h := hmac.New(sha256.New, s.key)
	// The lengths keep the fields apart: "a", "bc" is not "ab", "c".
	fmt.Fprintf(h, "%d:%s", len(purpose), purpose)
	for _, f := range fields {
		fmt.Fprintf(h, "%d:%s", len(f), f)
	}
	return hex.EncodeToString(h.Sum(nil))
}
