package local

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"

	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/oci"
	"github.com/tend-run/tend/internal/sandbox/oci/registry"
)

// pulls are the manifests that are being fetched: one fetch of each at a time.
type pulls struct {
	mu    sync.Mutex
	under map[string]chan struct{} // closed at the end; guarded by mu
}

// begin waits for the fetch of a manifest that is under way, and begins another.
func (p *pulls) begin(ctx context.Context, digest string) (end func(), err error) {
	for {
		p.mu.Lock()
		now := p.under[digest]
		if now == nil {
			if p.under == nil {
				p.under = map[string]chan struct{}{}
			}
			mine := make(chan struct{})
			p.under[digest] = mine
			p.mu.Unlock()
			return func() {
				p.mu.Lock()
				defer p.mu.Unlock()
				delete(p.under, digest)
				close(mine)
			}, nil
		}
		p.mu.Unlock()
		select {
		case <-now:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// PullImage implements driver.Imager.
func (d *Driver) PullImage(ctx context.Context, p driver.Pull) (m driver.Image, err error) {
	defer func() { // no handler is above a build: what a registry says must not end the server
		if v := recover(); v != nil {
			d.log.Error("a pull panicked", "image", p.Name, "panic", v, "stack", string(debug.Stack()))
			err = fmt.Errorf("image %.200q cannot be fetched: %v", p.Name, v)
		}
	}()
	ref, err := oci.ParseReference(p.Name)
	if err != nil {
		return m, err
	}
	if ref.Digest != "" {
		if m, err := d.imageFor(p.Name, p.Owner); err == nil {
			return m, nil // it cannot have changed
		}
	}
	say := p.Say
	if say == nil {
		say = func(string) {}
	}
	req := &registry.Request{Ref: ref, Machine: p.Owner, May: d.out.May}
	if p.User != "" || p.Password != "" {
		req.Credentials = &registry.Credentials{User: p.User, Password: p.Password}
	}
	say("asking " + ref.Host + " for " + ref.Short())
	found, err := d.cfg.Registry.Find(ctx, req)
	if err != nil {
		return m, err
	}
	defer found.Close()
	// Of one registry only: another one may promise the same, and never send it.
	end, err := d.pulls.begin(ctx, ref.Host+" "+found.Digest)
	if err != nil {
		return m, err
	}
	defer end()
	var given map[string]bool
	if !p.Owner {
		given = d.images.Given(ref, found.Digest)
	}
	from, err := d.images.Missing(found.Config, given)
	if err != nil {
		return m, err
	}
	if room, size := d.images.Room(), found.Size(from); room > 0 && size > room {
		return m, fmt.Errorf("image %s: its layers have %d MiB, and the disk has room for %d MiB: %w", ref.Short(), size>>20, room>>20,
			driver.ErrLimit)
	}
	b, stop := found.Fetch(ctx, from, registry.Sink{File: d.images.SpoolFile, Room: d.images.Room, Progress: p.Progress})
	defer func() { err = errors.Join(err, stop()) }()
	b.Names, b.Given = []string{ref.String()}, given
	if !p.Owner {
		if err := b.Wait(ctx, from); err != nil {
			return m, err
		}
	}
	m, err = d.images.Add(ctx, b, say)
	return m, imageFault(err)
}

// imageFor finds an image that is here, and that whoever asks may have.
func (d *Driver) imageFor(key string, owner bool) (driver.Image, error) {
	if owner {
		return d.images.Get(key)
	}
	return d.images.Shared(key)
}
