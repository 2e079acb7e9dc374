package distant

import "context"

func (c *client) handleFiles(ctx context.Context, call call, typ string, f *fields) (message, func(), error) {
	return nil, nil, faultf(kindUnsupported, "%s is unsupported", typ)
}
