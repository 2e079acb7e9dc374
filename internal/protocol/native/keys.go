package native

import (
	"context"

	"connectrpc.com/connect"

	tendv1 "github.com/tend-run/tend/gen/tend/v1"
)

// Keys are virtual keys for the gateway.
type Keys interface {
	Create(ctx context.Context, req *tendv1.CreateKeyRequest) (*tendv1.CreateKeyResponse, error)
	List(ctx context.Context) (*tendv1.ListKeysResponse, error)
	Revoke(ctx context.Context, key string) error
}

// keys implements the KeyService.
type keys struct{ kept Keys } // nil: there are none

func (k keys) Create(ctx context.Context,
	req *connect.Request[tendv1.CreateKeyRequest]) (*connect.Response[tendv1.CreateKeyResponse], error) {
	if k.kept == nil {
		return nil, unsupported("keys")
	}
	return answer(k.kept.Create(ctx, req.Msg))
}

func (k keys) List(ctx context.Context, _ *connect.Request[tendv1.ListKeysRequest]) (*connect.Response[tendv1.ListKeysResponse], error) {
	if k.kept == nil {
		return nil, unsupported("keys")
	}
	return answer(k.kept.List(ctx))
}

func (k keys) Revoke(ctx context.Context,
	req *connect.Request[tendv1.RevokeKeyRequest]) (*connect.Response[tendv1.RevokeKeyResponse], error) {
	if k.kept == nil {
		return nil, unsupported("keys")
	}
	return answer(&tendv1.RevokeKeyResponse{}, k.kept.Revoke(ctx, req.Msg.GetKey()))
}
