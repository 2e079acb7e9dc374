package gateway

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tend-run/tend/internal/lib/atomicfile"
	"github.com/tend-run/tend/internal/lib/errtext"
	"github.com/tend-run/tend/internal/lib/lazyregexp"
	"github.com/tend-run/tend/process"
)

// Bounds of keys.
const (
	MaxKeys      = 1000
	maxName      = 64 // bytes
	maxPatterns  = 100
	maxPattern   = 128 // bytes
	maxKeysBytes = 8 << 20
	// MostPerMinute and MostTokens are the largest values of rules.
	MostPerMinute = 1_000_000
	MostTokens    = 1_000_000_000_000
)

// Rules restrict the use of a key. The zero value has no bound.
type Rules struct {
	// Providers and Models that may be used, as patterns in which * matches any text;
	// empty: all.
	Providers []string `json:"providers,omitempty"`
	Models    []string `json:"models,omitempty"`
	// PerMinute is the most requests in a minute; 0: no bound.
	PerMinute int `json:"per_minute,omitempty"`
	// TokensPerDay is the most tokens in a day (UTC), of prompts and answers together; 0:
	// no bound.
	TokensPerDay int64 `json:"tokens_per_day,omitempty"`
	// Sandbox is the ID of a sandbox whose lifetime is extended when the key is used; may
	// be empty.
	Sandbox string `json:"sandbox,omitempty"`
}

// Key is a virtual key without its secret.
type Key struct {
	ID      string    `json:"id"`
	Name    string    `json:"name"`
	Created time.Time `json:"created"`
	Rules   Rules     `json:"rules"`
	// Hash is SHA-256 of the secret, in hex.
	Hash string `json:"hash"`
}

// keys keeps the keys in a file.
type keys struct {
	path string

	mu   sync.Mutex
	seen atomicfile.Seen // of the file that was read; guarded by mu
	all  []*Key          // guarded by mu
	by   map[string]*Key // by hash; guarded by mu
}

type keysFile struct {
	Keys []*Key `json:"keys"`
}

// lockTime bounds how long one server waits for another to have written its files.
const lockTime = 10 * time.Second

// lockDir has one server write the files of a directory at a time: while the server is
// upgraded there are two, and each would write what the other has just changed. Nothing
// else is locked by whoever waits: requests go on.
func lockDir(dir string) (unlock func(), err error) {
	ctx, cancel := context.WithTimeout(context.Background(), lockTime)
	defer cancel()
	return atomicfile.Lock(ctx, filepath.Join(dir, "lock"))
}

// load reads the file if it is another than before. k.mu is held.
func (k *keys) load() error {
	seen, err := atomicfile.Look(k.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		k.seen, k.all, k.by = atomicfile.Seen{}, nil, nil
		return nil
	case err != nil:
		return err
	case k.seen.Same(seen):
		return nil
	}
	data, err := atomicfile.Read(k.path, maxKeysBytes)
	if err != nil {
		return err
	}
	var f keysFile
	if err := json.Unmarshal(data, &f); err != nil {
		return fmt.Errorf("%s is damaged (%w); remove it, which makes all keys void", k.path, err)
	}
	by := map[string]*Key{}
	for _, one := range f.Keys {
		by[one.Hash] = one
	}
	k.seen, k.all, k.by = seen, f.Keys, by
	return nil
}

// store writes the keys, which are known from then on. k.mu is held.
func (k *keys) store(all []*Key) error {
	data, err := json.Marshal(keysFile{all})
	if err != nil {
		return err
	}
	if err := atomicfile.Synced(k.path, data, 0o600); err != nil {
		return fmt.Errorf("keep the keys: %w", err)
	}
	return k.load()
}

var nameForm = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

func (r *Rules) check() error {
	invalid := func(field, format string, args ...any) error {
		return &process.InvalidError{Field: "rules." + field, Reason: fmt.Sprintf(format, args...)}
	}
	for field, list := range map[string][]string{"providers": r.Providers, "models": r.Models} {
		if len(list) > maxPatterns {
			return invalid(field, "has %d entries; the limit is %d", len(list), maxPatterns)
		}
		for _, p := range list {
			if p == "" || len(p) > maxPattern {
				return invalid(field, "has one of %d bytes; 1 to %d are allowed", len(p), maxPattern)
			}
		}
	}
	if r.PerMinute < 0 || r.PerMinute > MostPerMinute {
		return invalid("requests_per_minute", "is %d; 0 to %d are allowed", r.PerMinute, MostPerMinute)
	}
	if r.TokensPerDay < 0 || r.TokensPerDay > MostTokens {
		return invalid("tokens_per_day", "is %d; 0 to %d are allowed", r.TokensPerDay, int64(MostTokens))
	}
	if len(r.Sandbox) > 128 {
		return invalid("sandbox", "has %d bytes; the limit is 128", len(r.Sandbox))
	}
	return nil
}

// create makes a key. Its secret is returned this once.
func (k *keys) create(name string, rules Rules) (key Key, secret string, err error) {
	if len(name) > maxName || !nameForm.MatchString(name) {
		return key, "", &process.InvalidError{Field: "name",
			Reason: fmt.Sprintf("is %.80q; letters, digits, ., _ and - are allowed, %d bytes at most, and a letter or digit comes first",
				name, maxName)}
	}
	if err := rules.check(); err != nil {
		return key, "", err
	}
	rules.Providers = slices.Clone(rules.Providers)
	for i, p := range rules.Providers {
		rules.Providers[i] = cmp.Or(aliases[p], p)
	}
	unlock, err := lockDir(filepath.Dir(k.path))
	if err != nil {
		return key, "", err
	}
	defer unlock()
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.load(); err != nil {
		return key, "", err
	}
	if slices.ContainsFunc(k.all, func(other *Key) bool { return other.Name == name }) {
		return key, "", errtext.New(fmt.Sprintf("there is a key %q; revoke it, or take another name", name), process.ErrExists)
	}
	if len(k.all) >= MaxKeys {
		return key, "", fmt.Errorf("there are %d keys, and no more may be; revoke some: %w", len(k.all), process.ErrLimit)
	}
	secret = "vk_" + strings.ToLower(rand.Text())
	key = Key{ID: strings.ToLower(rand.Text()[:12]), Name: name, Created: time.Now().UTC(), Rules: rules, Hash: hashOf(secret)}
	return key, secret, k.store(append(slices.Clone(k.all), &key))
}

// revoke makes a key void, by its ID or name.
func (k *keys) revoke(which string) error {
	unlock, err := lockDir(filepath.Dir(k.path))
	if err != nil {
		return err
	}
	defer unlock()
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.load(); err != nil {
		return err
	}
	rest := slices.DeleteFunc(slices.Clone(k.all), func(one *Key) bool { return one.ID == which || one.Name == which })
	if len(rest) == len(k.all) {
		return errtext.New(fmt.Sprintf("there is no key %.80q", which), process.ErrNotFound)
	}
	return k.store(rest)
}

// list returns all keys, the oldest first.
func (k *keys) list() ([]Key, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.load(); err != nil {
		return nil, err
	}
	out := make([]Key, len(k.all))
	for i, one := range k.all {
		out[i] = *one
	}
	return out, nil
}

// find returns the key of a secret; nil: there is none. The time that it takes says
// nothing of a secret, since hashes are compared.
func (k *keys) find(secret string) (*Key, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.load(); err != nil {
		return nil, err
	}
	return k.by[hashOf(secret)], nil
}

func hashOf(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// matches reports whether a text is as one of the patterns; none: it is.
func matches(patterns []string, text string) bool {
	return len(patterns) == 0 || slices.ContainsFunc(patterns, func(p string) bool {
		parts := strings.Split(p, "*")
		for i, part := range parts {
			parts[i] = regexp.QuoteMeta(part)
		}
		ok, err := regexp.MatchString("^(?s:"+strings.Join(parts, ".*")+")$", text)
		return ok && err == nil
	})
}

func openKeys(dir string) *keys { return &keys{path: filepath.Join(dir, "keys.json")} }
