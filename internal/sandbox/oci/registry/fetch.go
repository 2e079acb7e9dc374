package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/google/go-containerregistry/pkg/v1"

	"github.com/tend-run/tend/internal/sandbox/oci"
)

// atOnce is how many layers of an image are fetched at a time.
const atOnce = 4

// Fetch begins to fetch the layers of an image from an index on, several at a time, each to a
// file that spool makes. The bundle's layers can be read while they come. progress gets the
// bytes that have come, and how many there will be; it may be nil, and is called from several
// goroutines. stop ends all, and removes the files.
func (m *Image) Fetch(ctx context.Context, from int, spool func() (*os.File, error),
	progress func(done, total int64)) (b oci.Bundle, stop func() error) {
	ctx, cancel := context.WithCancelCause(ctx)
	f := &fetch{m: m, ctx: ctx, progress: progress}
	b = oci.Bundle{Digest: m.Digest, Config: m.Config}
	for i, d := range m.Layers {
		g := &growing{d: d, changed: make(chan struct{})}
		if i >= from {
			f.total += d.Size
			f.queue = append(f.queue, g)
		}
		b.Layers = append(b.Layers, oci.Blob{Digest: d.Digest, Size: d.Size, Open: func(ctx context.Context) (io.ReadCloser, error) {
			if i < from { // it was there before; another has removed it meanwhile
				return m.s.blob(ctx, d.Digest, 0, d.Size)
			}
			return &follower{g: g, ctx: ctx}, nil
		}})
	}
	var wg sync.WaitGroup
	for range min(atOnce, len(f.queue)) {
		wg.Go(func() {
			for {
				g := f.next()
				if g == nil {
					return
				}
				g.end(f.one(g, spool))
			}
		})
	}
	return b, func() error {
		cancel(errors.New("the fetch of the image has ended"))
		wg.Wait()
		var errs []error
		for _, g := range f.all {
			if g.file != nil {
				errs = append(errs, g.file.Close(), os.Remove(g.file.Name()))
			}
		}
		return errors.Join(errs...)
	}
}

type fetch struct {
	m        *Image
	ctx      context.Context
	progress func(done, total int64)
	total    int64

	mu    sync.Mutex
	queue []*growing // guarded by mu
	all   []*growing // that were begun; guarded by mu
	done  int64      // bytes; guarded by mu
}

func (f *fetch) next() *growing {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.queue) == 0 {
		return nil
	}
	g := f.queue[0]
	f.queue, f.all = f.queue[1:], append(f.all, g)
	return g
}

// one fetches a layer, and continues where it was cut off.
func (f *fetch) one(g *growing, spool func() (*os.File, error)) error {
	if err := f.ctx.Err(); err != nil {
		return context.Cause(f.ctx)
	}
	file, err := spool()
	if err != nil {
		return err
	}
	g.mu.Lock()
	g.file = file
	g.mu.Unlock()
	at := int64(0)
	for try := 1; ; try++ {
		before := at
		err := f.piece(g, &at)
		if err == nil {
			return nil
		}
		if at > before {
			try = 1 // it goes on
		}
		if f.ctx.Err() != nil {
			return context.Cause(f.ctx)
		}
		if !errors.Is(err, errCut) {
			return err
		}
		if try >= tries {
			return &FetchError{f.m.s.ref, err}
		}
	}
}

// errCut: a body ended before its end.
var errCut = errors.New("the registry has cut off a layer")

func (f *fetch) piece(g *growing, at *int64) error {
	body, err := f.m.s.blob(f.ctx, g.d.Digest, *at, g.d.Size)
	if err != nil {
		return err
	}
	defer body.Close()
	buf := make([]byte, 128<<10)
	for {
		n, err := body.Read(buf)
		if *at+int64(n) > g.d.Size {
			return fmt.Errorf("the registry sends a layer of more than the %d bytes that its manifest says", g.d.Size)
		}
		if _, werr := g.file.WriteAt(buf[:n], *at); werr != nil {
			return werr
		}
		*at += int64(n)
		g.grow(*at)
		if f.progress != nil && n > 0 {
			f.mu.Lock()
			f.done += int64(n)
			f.progress(f.done, f.total)
			f.mu.Unlock()
		}
		if err == nil {
			continue
		}
		if errors.Is(err, io.EOF) && *at == g.d.Size {
			return nil
		}
		return fmt.Errorf("%w after %d bytes of %d: %w", errCut, *at, g.d.Size, err)
	}
}

// growing is a file that is being fetched.
type growing struct {
	d v1.Descriptor

	mu      sync.Mutex
	file    *os.File      // guarded by mu
	size    int64         // that is there; guarded by mu
	over    bool          // nothing more comes; guarded by mu
	err     error         // why; guarded by mu
	changed chan struct{} // closed, and made anew, when one of them changes; guarded by mu
}

func (g *growing) grow(size int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.size = size
	close(g.changed)
	g.changed = make(chan struct{})
}

func (g *growing) end(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.over, g.err = true, err
	close(g.changed)
	g.changed = make(chan struct{})
}

// follower reads a growing file from its beginning.
type follower struct {
	g   *growing
	ctx context.Context
	at  int64
}

func (f *follower) Read(b []byte) (int, error) {
	for {
		f.g.mu.Lock()
		file, size, over, err, changed := f.g.file, f.g.size, f.g.over, f.g.err, f.g.changed
		f.g.mu.Unlock()
		if f.at < size {
			n, err := file.ReadAt(b[:min(int64(len(b)), size-f.at)], f.at)
			f.at += int64(n)
			if n > 0 {
				err = nil
			}
			return n, err
		}
		if over && err == nil {
			err = io.EOF
		}
		if over {
			return 0, err
		}
		select {
		case <-changed:
		case <-f.ctx.Done():
			return 0, context.Cause(f.ctx)
		}
	}
}

func (f *follower) Close() error { return nil }
