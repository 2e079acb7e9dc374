package oci

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/v1"

	"github.com/tend-run/tend/internal/sandbox/driver"
)

// Bundle is an image that comes from somewhere, before it is in a [Store].
type Bundle struct {
	// Names that it gets, in full.
	Names []string
	// Digest of its manifest ("sha256:…"); "": it had none.
	Digest string
	// Fetched: a registry has it, so it may go for another one.
	Fetched bool
	// Config is the JSON of its configuration.
	Config []byte
	// Layers, lowest first.
	Layers []Blob
	// Public reports, once the layers are here, whether whoever asks its registry gets them; nil:
	// no.
	Public func() bool
	// Given are the chains that whoever asks may have because they are here: he has to bring all
	// others, and takes no name from an image that is not public. nil: the owner asks, who may
	// have all.
	Given map[string]bool
}

// Blob is a layer of a bundle.
type Blob struct {
	// Digest and Size of the bytes that Open returns; zero and -1: they are not known.
	Digest v1.Hash
	Size   int64
	// Open returns the tar of the layer, which may be compressed by gzip or zstd.
	Open func(ctx context.Context) (io.ReadCloser, error)
}

// Wait waits until the layers from an index on have come, and checks their digests. Whoever
// asks for an image of a registry that nobody here trusts waits before [Store.Add]: while that
// makes a layer, others who need the same one wait for it.
func (b *Bundle) Wait(ctx context.Context, from int) error {
	for i := from; i < len(b.Layers); i++ {
		r, err := b.Layers[i].Open(ctx)
		if err != nil {
			return err
		}
		sum := sha256.New()
		_, err = io.Copy(sum, r)
		if err = errors.Join(err, r.Close()); err != nil {
			return err
		}
		if got := hex.EncodeToString(sum.Sum(nil)); got != b.Layers[i].Digest.Hex {
			return invalid("has a layer with the digest sha256:%s; %s was promised", got, b.Layers[i].Digest)
		}
	}
	return nil
}

// invalid says what is wrong with an image that came.
func invalid(format string, args ...any) error {
	return &driver.InvalidError{Field: "image", Reason: fmt.Sprintf(format, args...)}
}

// Decode reads the JSON of a manifest, an index or a configuration.
func Decode(b []byte, what string, v any) error {
	if len(b) > MaxJSON {
		return invalid("has a %s of more than %d bytes", what, MaxJSON)
	}
	if err := json.NewDecoder(bytes.NewReader(b)).Decode(v); err != nil {
		return invalid("has a %s that cannot be read: %v", what, err)
	}
	return nil
}

// Sum is the digest of bytes.
func Sum(b []byte) v1.Hash {
	s := sha256.Sum256(b)
	return v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(s[:])}
}

// Verify reports bytes that do not have a digest.
func Verify(b []byte, want v1.Hash, what string) error {
	if got := Sum(b); got != want {
		return invalid("has a %s with the digest %s; %s was promised", what, got, want)
	}
	return nil
}

// config reads and checks the configuration of a bundle.
func (b *Bundle) config() (*v1.ConfigFile, error) {
	c := new(v1.ConfigFile)
	if err := Decode(b.Config, "configuration", c); err != nil {
		return nil, err
	}
	diffs := c.RootFS.DiffIDs
	if len(diffs) != len(b.Layers) {
		return nil, invalid("has %d layers, and a configuration of %d", len(b.Layers), len(diffs))
	}
	if len(diffs) > MaxLayers {
		return nil, invalid("has %d layers; the limit is %d", len(diffs), MaxLayers)
	}
	for _, d := range diffs {
		if d.Algorithm != "sha256" {
			return nil, invalid("has a layer with a digest of the kind %.20q; sha256 is known", d.Algorithm)
		}
	}
	if c.OS != "" && c.OS != "linux" {
		return nil, invalid("is for %.40q; sandboxes run programs for linux", c.OS)
	}
	if p := c.Platform(); p != nil && c.Architecture != "" && !Own().Runs(*p) {
		return nil, invalid("is for %s, and this machine is %s; pull or save the image for this platform "+
			"(programs of another one need an emulator that the kernel knows, by binfmt_misc)", p, Own().Platform)
	}
	if len(c.Config.Env) > driver.MaxEnv {
		return nil, invalid("sets %d variables; the limit is %d", len(c.Config.Env), driver.MaxEnv)
	}
	for _, s := range slices.Concat(c.Config.Env, c.Config.Entrypoint, c.Config.Cmd, []string{c.Config.User, c.Config.WorkingDir}) {
		if strings.IndexByte(s, 0) >= 0 {
			return nil, invalid("has a NUL byte in its configuration")
		}
	}
	return c, nil
}

// chains returns the digest of each layer with all below it.
func chains(diffs []v1.Hash) []string {
	var all []string
	for i, d := range diffs {
		at := d
		if i > 0 {
			at = Sum([]byte(all[i-1] + " " + d.String()))
		}
		all = append(all, at.String())
	}
	return all
}
