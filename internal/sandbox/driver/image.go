package driver

import (
	"context"
	"io"
	"time"
)

// Imager is an optional ability of a [Driver]: it holds images, from which sandboxes are
// created ([Spec].Image).
type Imager interface {
	// ImportImage reads an archive: of "docker save", an OCI layout, or a whole root. It may
	// be compressed by gzip or zstd. An archive may have several images. Errors:
	// *InvalidError, ErrLimit.
	ImportImage(ctx context.Context, archive io.Reader, o ImageOptions) ([]Image, error)
	// Image finds an image by its ID, the first 6 digits or more of it, or a name. ErrNotFound.
	Image(ctx context.Context, key string) (Image, error)
	// Images returns all, the newest first.
	Images(ctx context.Context) ([]Image, error)
	// RemoveImage takes a name from an image, and removes the image with the last one, or if
	// the key is its ID: the answer has no names then. Sandboxes and templates that were
	// created from it stay. ErrNotFound.
	RemoveImage(ctx context.Context, key string) (Image, error)
	// PruneImages removes the images without a name, or all that no sandbox and no template
	// uses, and returns them.
	PruneImages(ctx context.Context, all bool) ([]Image, error)
}

// ImageOptions say how an image is brought here.
type ImageOptions struct {
	// Name that it gets, beside those in the archive; "": none.
	Name string
	// Say gets what happens, in sentences; nil: nobody.
	Say func(string)
}

// Image is the state of an image.
type Image struct {
	ID       string // "sha256:" and 64 hexadecimal digits, of its configuration
	Digest   string // of its manifest in a registry; "": it came from none
	Names    []string
	Platform string    // "linux/amd64"; "": it does not say
	Made     time.Time // as the image says
	Added    time.Time
	// Bytes and Entries of all its layers, which other images may share.
	Bytes, Entries int64
	// Run, Entrypoint and Cmd are what its programs get.
	Run             RunConfig
	Entrypoint, Cmd []string
	Ports           []string // "80/tcp"
	Labels          map[string]string
	// Layers are the digests of its chains, lowest first.
	Layers []string
	// Left says in sentences what of the image is left out.
	Left []string
}
