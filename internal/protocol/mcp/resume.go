package mcp

import (
	"bytes"
	"compress/flate"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"strings"

	"github.com/tend-run/tend/internal/protocol"
)

// maxResume bounds the id of an event in bytes: it comes back in a header.
const maxResume = 6 << 10

// kept is a call as it stands in the id of its first event.
type kept struct {
	Key    string          `json:"k"`
	From   [4]int64        `json:"f"`
	Marked bool            `json:"m,omitempty"`
	Body   json.RawMessage `json:"b"`
}

// seal returns the call as the id of an event; "": it is too long for one.
func (f *Face) seal(k *kept) string {
	text, err := json.Marshal(k)
	if err != nil || len(text) > 16*maxResume {
		return ""
	}
	var b bytes.Buffer
	w, err := flate.NewWriter(&b, flate.BestSpeed)
	if err != nil { // never: the level is a good one
		return ""
	}
	_, _ = w.Write(text) // a buffer takes all
	_ = w.Close()
	sealed := base64.RawURLEncoding.EncodeToString(b.Bytes())
	if sealed = sealed + "." + f.cfg.Secret.Sign("mcp", sealed); len(sealed) > maxResume {
		return ""
	}
	return sealed
}

var errSeal = errors.New("Last-Event-ID is none of this server's; make the call again")

// unseal returns the call of an id that seal made, on this server or one before it.
func (f *Face) unseal(id string) (*kept, error) {
	sealed, sign, ok := strings.Cut(id, ".")
	if !ok || len(id) > maxResume || !protocol.Token(f.cfg.Secret.Sign("mcp", sealed)).Matches(sign) {
		return nil, errSeal
	}
	packed, err := base64.RawURLEncoding.DecodeString(sealed)
	if err != nil {
		return nil, errSeal
	}
	text, err := io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(packed)), 17*maxResume))
	if err != nil {
		return nil, errSeal
	}
	k := new(kept)
	if json.Unmarshal(text, k) != nil || k.Key == "" {
		return nil, errSeal
	}
	return k, nil
}
