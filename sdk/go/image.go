package tend

import (
	"context"
	"errors"
	"io"
	"time"

	"connectrpc.com/connect"

	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/internal/tendpb"
)

// ImageInfo is what is known of an image, from which sandboxes are created
// (SandboxSpec.Image).
type ImageInfo struct {
	// ID is "sha256:" and 64 hexadecimal digits, of its configuration. Digest is that of its
	// manifest in a registry; "": it came from none.
	ID, Digest string
	Names      []string
	Platform   string    // "linux/amd64"; "": it does not say
	Made       time.Time // as the image says; zero: it does not
	Added      time.Time
	// Bytes and Entries of all its layers, which other images may share.
	Bytes, Entries int64
	// User, Dir and Env are the defaults of its sandboxes; Entrypoint, and Cmd behind it, are
	// what a container engine would start.
	User, Dir       string
	Env             map[string]string
	Entrypoint, Cmd []string
	Ports           []string // "80/tcp"
	Labels          map[string]string
	Layers          []string // digests of its chains of layers, lowest first
	LeftOut         []string // what of the image is left out, in sentences
}

func toImage(m *tendv1.Image) ImageInfo {
	return ImageInfo{
		ID: tendpb.CleanName(m.GetId()), Digest: tendpb.CleanName(m.GetDigest()), Names: cleanNames(m.GetNames()),
		Platform: tendpb.CleanName(m.GetPlatform()), Made: tendpb.ToTime(m.GetMade()), Added: tendpb.ToTime(m.GetAdded()),
		Bytes: m.GetBytes(), Entries: m.GetEntries(), User: tendpb.CleanName(m.GetRun().GetUser()), Dir: m.GetRun().GetDir(),
		Env: m.GetRun().GetEnv(), Entrypoint: m.GetEntrypoint(), Cmd: m.GetCmd(), Ports: cleanNames(m.GetPorts()),
		Labels: m.GetLabels(), Layers: cleanNames(m.GetLayers()), LeftOut: mapped(m.GetLeftOut(), tendpb.CleanText),
	}
}

func cleanNames(list []string) []string { return mapped(list, tendpb.CleanName) }

// Images returns all images, the newest first.
func (c *Client) Images(ctx context.Context) (all []ImageInfo, err error) {
	err = c.aboutSandboxes(ctx, c.call, unary(c.images.ListImages, &tendv1.ListImagesRequest{}, func(m *tendv1.ListImagesResponse) error {
		all = mapped(m.GetImages(), toImage)
		return nil
	}))
	return all, knownCall(err, "has no images, or is")
}

// Image finds an image by its ID, the first 6 digits or more of it, or a name such as
// "python:3". If there is none, the error is [process.ErrNotFound].
func (c *Client) Image(ctx context.Context, key string) (one ImageInfo, err error) {
	req := &tendv1.GetImageRequest{Image: key}
	err = c.aboutSandboxes(ctx, c.call, checked("image", c.images.GetImage, req, func(m *tendv1.GetImageResponse) error {
		one = toImage(m.GetImage())
		return nil
	}))
	return one, knownCall(err, "has no images, or is")
}

// ImportImage sends an archive: of "docker save", an OCI layout as a tar, or a tar of a whole
// root, each compressed by gzip or zstd or not. The image gets the name, or if that is empty
// the names in the archive, which may have several images. Nothing is kept of a call that
// breaks off, and it is not repeated.
func (c *Client) ImportImage(ctx context.Context, archive io.Reader, name string) ([]ImageInfo, error) {
	first := &tendv1.ImportImageRequest{Name: name}
	if err := sendable("name", first); err != nil {
		return nil, err
	}
	if err := c.needsSandboxes(ctx); err != nil {
		return nil, err
	}
	ctx, cancel := c.stream(ctx)
	defer cancel(nil)
	stream := c.images.ImportImage(ctx)
	err := stream.Send(first)
	buf := make([]byte, writePiece)
	for err == nil {
		n, rerr := io.ReadFull(archive, buf)
		if n > 0 {
			err = stream.Send(&tendv1.ImportImageRequest{Data: buf[:n]})
		}
		if errors.Is(rerr, io.EOF) || errors.Is(rerr, io.ErrUnexpectedEOF) {
			break
		}
		if rerr != nil {
			cancel(rerr) // half of it must not look whole
			_, _ = stream.CloseAndReceive()
			return nil, rerr
		}
	}
	resp, err := stream.CloseAndReceive() // also says why a piece was not taken
	if err != nil {
		return nil, knownCall(c.domainError(ctx, err), "has no images, or is")
	}
	return mapped(resp.Msg.GetImages(), toImage), nil
}

// PullImage has the server fetch an image from its registry, as far as it is not there, with the
// credentials that docker login or podman login have stored on its machine. It calls say, if it
// is not nil, with what happens, and progress with the bytes that have come and how many there
// will be. When ctx ends, what is complete stays, and the next call goes on with the rest. If
// there is none, the error is [process.ErrNotFound].
func (c *Client) PullImage(ctx context.Context, name string, say func(string),
	progress func(done, total int64)) (one ImageInfo, err error) {
	req := &tendv1.PullImageRequest{Image: name}
	if err := sendable("image", req); err != nil {
		return one, err
	}
	if err := c.needsSandboxes(ctx); err != nil {
		return one, err
	}
	ended := connect.NewError(connect.CodeUnavailable, errors.New("the server ended the fetch of an image without its end"))
	err = c.repeat(ctx, "pull image", never, func(a *attempts) error {
		return receive(ctx, c, c.images.PullImage, req, ended, func(m *tendv1.PullImageResponse) error {
			a.progress()
			if m.GetMessage() != "" && say != nil {
				say(tendpb.CleanText(m.GetMessage()))
			}
			if progress != nil {
				progress(m.GetDone(), m.GetTotal())
			}
			if m.GetImage() == nil {
				return nil
			}
			one = toImage(m.GetImage())
			return io.EOF
		})
	})
	return one, knownCall(err, "fetches no images, or is")
}

// ExportImage writes an archive of an image, as [Client.ImportImage] and "docker load" read it:
// one that is named by a name has that name alone, and one that is named by its ID all of its
// names. After an error it is not whole. If there is none, the error is [process.ErrNotFound].
func (c *Client) ExportImage(ctx context.Context, key string, w io.Writer) error {
	req := &tendv1.ExportImageRequest{Image: key}
	if err := sendable("image", req); err != nil {
		return err
	}
	if err := c.needsSandboxes(ctx); err != nil {
		return err
	}
	err := receive(ctx, c, c.images.ExportImage, req, nil, func(m *tendv1.ExportImageResponse) error {
		_, err := w.Write(m.GetData())
		return err
	})
	return knownCall(c.domainError(ctx, err), "exports no images, or is")
}

// RemoveImage takes a name from an image, and removes the image with its last name, or if the
// key is its ID: then it is returned without names. Sandboxes and templates stay. If there is
// none, the error is [process.ErrNotFound].
func (c *Client) RemoveImage(ctx context.Context, key string) (one ImageInfo, err error) {
	req := &tendv1.RemoveImageRequest{Image: key}
	err = c.aboutSandboxes(ctx, c.once, checked("image", c.images.RemoveImage, req, func(m *tendv1.RemoveImageResponse) error {
		one = toImage(m.GetImage())
		return nil
	}))
	return one, knownCall(err, "has no images, or is")
}

// PruneImages removes the images without a name, or with all those that no sandbox and no
// template uses, and returns them.
func (c *Client) PruneImages(ctx context.Context, all bool) (gone []ImageInfo, err error) {
	req := &tendv1.PruneImagesRequest{All: all}
	err = c.aboutSandboxes(ctx, c.once, unary(c.images.PruneImages, req, func(m *tendv1.PruneImagesResponse) error {
		gone = mapped(m.GetImages(), toImage)
		return nil
	}))
	return gone, knownCall(err, "has no images, or is")
}
