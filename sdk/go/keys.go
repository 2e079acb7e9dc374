package tend

import (
	"context"
	"time"

	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/internal/tendpb"
)

// KeyRules limit the use of a virtual key. The zero value has no limits.
type KeyRules struct {
	// Providers and Models that may be used, as patterns in which * is any text; empty:
	// all. At most 100 of 128 bytes.
	Providers, Models []string
	// RequestsPerMinute, at most 1,000,000; 0: no limit.
	RequestsPerMinute int
	// TokensPerDay for questions and answers, in a day (UTC), at most 10^12; 0: no limit.
	TokensPerDay int64
	// Sandbox is the ID of a sandbox that is kept alive while the key is used; may be
	// empty.
	Sandbox string
}

// Key is a virtual key: it gives access to the server's gateway to model providers, and
// is used to report the status of a machine. Its secret is not stored.
type Key struct {
	ID, Name string
	Rules    KeyRules
	Created  time.Time
	// Requests and Tokens of today (UTC), and the time of the last use.
	Requests, Tokens int64
	Used             time.Time
	// Status is the last reported status: creating (no report yet), healing, ready or
	// broken; Error says why it is broken.
	Status, Error string
	Reported      time.Time
}

// CreateKey creates a key and returns its secret, which no other call returns. Errors:
// *process.InvalidError, process.ErrExists for a name that is taken, process.ErrLimit.
func (c *Client) CreateKey(ctx context.Context, name string, rules KeyRules) (key Key, secret string, err error) {
	req := &tendv1.CreateKeyRequest{Name: name, Rules: &tendv1.KeyRules{
		Providers: rules.Providers, Models: rules.Models, RequestsPerMinute: int64(rules.RequestsPerMinute),
		TokensPerDay: rules.TokensPerDay, Sandbox: rules.Sandbox,
	}}
	err = keyError(c.once(ctx, checked("name", c.keys.Create, req, func(m *tendv1.CreateKeyResponse) error {
		key, secret = toKey(m.GetKey()), m.GetSecret()
		return nil
	})))
	return key, secret, err
}

// Keys returns all keys, the oldest first.
func (c *Client) Keys(ctx context.Context) (all []Key, err error) {
	err = keyError(c.call(ctx, unary(c.keys.List, &tendv1.ListKeysRequest{}, func(m *tendv1.ListKeysResponse) error {
		all = mapped(m.GetKeys(), toKey)
		return nil
	})))
	return all, err
}

// RevokeKey revokes a key, by its name or ID. If there is none, the error is
// process.ErrNotFound.
func (c *Client) RevokeKey(ctx context.Context, key string) error {
	return keyError(c.once(ctx, checked("key", c.keys.Revoke, &tendv1.RevokeKeyRequest{Key: key}, nil)))
}

func keyError(err error) error { return knownCall(err, "knows no keys, it is") }

func toKey(m *tendv1.Key) Key {
	r := m.GetRules()
	return Key{
		ID: tendpb.CleanName(m.GetId()), Name: tendpb.CleanName(m.GetName()), Created: tendpb.ToTime(m.GetCreated()),
		Rules: KeyRules{
			Providers: r.GetProviders(), Models: r.GetModels(), RequestsPerMinute: int(r.GetRequestsPerMinute()),
			TokensPerDay: r.GetTokensPerDay(), Sandbox: r.GetSandbox(),
		},
		Requests: m.GetRequests(), Tokens: m.GetTokens(), Used: tendpb.ToTime(m.GetUsed()),
		Status: tendpb.CleanName(m.GetStatus()), Error: tendpb.CleanText(m.GetError()), Reported: tendpb.ToTime(m.GetReported()),
	}
}
