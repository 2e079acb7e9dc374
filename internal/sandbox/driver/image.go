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
	// PullImage fetches an image from its registry, or as much of it as is not here. Errors:
	// *InvalidError, also for one that may not be had; ErrNotFound, ErrLimit.
	PullImage(ctx context.Context, p Pull) (Image, error)
	// ExportImage writes an archive of an image, as ImportImage and "docker load" read it.
	// ErrNotFound.
	ExportImage(ctx context.Context, key string, w io.Writer) error
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
	// ImageUse reports how much all images take.
	ImageUse() ImageUse
}

// ImageUse is how much all images take.
type ImageUse struct {
	Images int
	// Bytes of their files, Most that they may have, and Disk bytes of the disk that they are on; 0
	// of the last two: no limit, and not known.
	Bytes, Most, Disk int64
}

// ImageOptions say how an image is brought here.
type ImageOptions struct {
	// Name that it gets, beside those in the archive; "": none.
	Name string
	// Say gets what happens, in sentences; nil: nobody.
	Say func(string)
}

// Pull says what to fetch, and for whom.
type Pull struct {
	Name string // as people write it: "python:3"
	// Owner: the request is of the daemon's owner. It may use the credentials of this machine
	// for registries, and lead to any address; others lead nowhere where no sandbox may.
	Owner bool
	// User and Password for the registry; empty: none.
	User, Password string
	// Say gets what happens, in sentences, and Progress the bytes that have come and how many
	// there will be. Both may be nil; they are called from several goroutines.
	Say      func(string)
	Progress func(done, total int64)
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
	// Shell and OnBuild are for Dockerfiles that begin with it: what runs a line of RUN, and
	// instructions that come first.
	Shell, OnBuild []string
	Ports          []string // "80/tcp"
	Labels         map[string]string
	// Layers are the digests of its chains, lowest first.
	Layers []string
	// Left says in sentences what of the image is left out.
	Left []string
	// Public: it was fetched as everybody may fetch it.
	Public bool
}
