package parts

import (
	"context"
	"math"
	"time"

	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/internal/protocol/gateway"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/tendpb"
)

// keys answers the KeyService with the gateway's.
type keys struct{ gate *gateway.Face }

// Create implements native.Keys.
func (k keys) Create(_ context.Context, req *tendv1.CreateKeyRequest) (*tendv1.CreateKeyResponse, error) {
	r := req.GetRules()
	key, secret, err := k.gate.CreateKey(req.GetName(), gateway.Rules{
		Providers: r.GetProviders(), Models: r.GetModels(), Sandbox: r.GetSandbox(), TokensPerDay: r.GetTokensPerDay(),
		PerMinute: int(max(math.MinInt32, min(r.GetRequestsPerMinute(), math.MaxInt32))), // else it would be another number on 32 bits
	})
	if err != nil {
		return nil, err
	}
	return &tendv1.CreateKeyResponse{Key: keyMessage(&key), Secret: secret}, nil
}

// List implements native.Keys.
func (k keys) List(context.Context) (*tendv1.ListKeysResponse, error) {
	all, err := k.gate.Keys()
	if err != nil {
		return nil, err
	}
	out := &tendv1.ListKeysResponse{}
	for i := range all {
		one := &all[i]
		m := keyMessage(&one.Key)
		m.Requests, m.Tokens, m.Used = one.Used.Requests, one.Used.Tokens, tendpb.Time(one.Used.Last)
		m.Status, m.Error, m.Reported = one.Report.Status, one.Report.Error, tendpb.Time(one.Report.Time)
		out.Keys = append(out.Keys, m)
	}
	return out, nil
}

// Revoke implements native.Keys.
func (k keys) Revoke(_ context.Context, key string) error { return k.gate.RevokeKey(key) }

func keyMessage(k *gateway.Key) *tendv1.Key {
	return &tendv1.Key{
		Id: k.ID, Name: k.Name, Created: tendpb.Time(k.Created),
		Rules: &tendv1.KeyRules{
			Providers: k.Rules.Providers, Models: k.Rules.Models, RequestsPerMinute: int64(k.Rules.PerMinute), TokensPerDay: k.Rules.TokensPerDay,
			Sandbox: k.Rules.Sandbox,
		},
	}
}

// liveOn is how long a sandbox lives on at least after each use of a key of its own.
const liveOn = 15 * time.Minute

// prolonger has sandboxes live on.
func prolonger(d driver.Driver) func(ctx context.Context, sandbox string) error {
	return func(ctx context.Context, sandbox string) error {
		s, err := d.Get(ctx, sandbox)
		if err != nil {
			return err
		}
		at := time.Now().Add(liveOn)
		_, err = s.Update(ctx, driver.Change{Extend: &at})
		return err
	}
}
