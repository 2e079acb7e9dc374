package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/google/go-containerregistry/pkg/v1"

	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/oci"
)

const (
	// atOnce is how many layers of an image are fetched at a time.
	atOnce = 4
	// leastRoom is how much the disk has to have while layers come, in bytes.
	leastRoom = 64 << 20
)

// Sink is where layers come to.
type Sink struct {
	// File makes a file for a layer.
	File func() (*os.File, error)
	// Room is asked again and again how many bytes the disk of the files has; nil, and the
	// answer 0: it is not known.
	Room func() int64
	// Progress gets the bytes that have come, and how many there will be. It may be nil, and is
	// called from several goroutines.
	Progress func(done, total int64)
}

// Fetch begins to fetch the layers of an image from an index on, several at a time. The
// bundle's layers can be read while they come. stop ends all, and removes the files.
func (m *Image) Fetch(ctx context.Context, from int, to Sink) (b oci.Bundle, stop func() error) {
	ctx, cancel := context.WithCancelCause(ctx)
	f := &fetch{m: m, ctx: ctx, to: to, total: m.Size(from)}
	b = oci.Bundle{Digest: m.Digest, Fetched: true, Config: m.Config, Public: m.Public}
	for i, d := range m.Layers {
		g := &growing{d: d, changed: make(chan struct{})}
		if i >= from {
			f.queue = append(f.queue, g)
		}
		b.Layers = append(b.Layers, oci.Blob{Digest: d.Digest, Size: d.Size, Open: func(ctx context.Context) (io.ReadCloser, error) {
			if i < from { // it was there before; another has removed it meanwhile
				return m.s.blob(ctx, d.Digest, 0, d.Size)
			}
			return &follower{g: g, ctx: ctx, closed: make(chan struct{})}, nil
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
				g.end(f.one(g))
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
	m     *Image
	ctx   context.Context
	to    Sink
	total int64

	mu    sync.Mutex
	queue []*growing // guarded by mu
	all   []*growing // that were begun; guarded by mu
	done  int64      // bytes; guarded by mu
	asked int64      // done, when Room was asked last; guarded by mu
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
func (f *fetch) one(g *growing) (err error) {
	defer func() { // it is on its own, and the server is to go on
		if v := recover(); v != nil {
			err = fmt.Errorf("layer %s cannot be fetched: %v", g.d.Digest, v)
		}
	}()
	if err := f.ctx.Err(); err != nil {
		return context.Cause(f.ctx)
	}
	file, err := f.to.File()
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
		if full := f.came(int64(n)); full != nil {
			return full
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

// came counts bytes that have come, and asks for the room that is left.
func (f *fetch) came(n int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n == 0 {
		return nil
	}
	f.done += n
	if f.to.Progress != nil {
		f.to.Progress(f.done, f.total)
	}
	if f.to.Room == nil || f.done-f.asked < leastRoom/2 {
		return nil
	}
	f.asked = f.done
	if room := f.to.Room(); room > 0 && room < leastRoom {
		return fmt.Errorf("the disk is nearly full, at %d bytes of %d of the image: %w", f.done, f.total, driver.ErrLimit)
	}
	return nil
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
	// closed ends a Read that waits, in whichever goroutine.
	closed chan struct{}
	close  sync.Once
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
		case <-f.closed:
			return 0, os.ErrClosed
		case <-f.ctx.Done():
			return 0, context.Cause(f.ctx)
		}
	}
}

// Close may be called again.
func (f *follower) Close() error {
	f.close.Do(func() { close(f.closed) })
	return nil
}
