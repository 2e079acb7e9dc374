package multi

import (
	"context"
	"io"

	"github.com/tend-run/tend/internal/sandbox/driver"
)

var _ driver.Imager = (*Driver)(nil)

// images are those of sandboxes that are isolated: there are no others.
func (d *Driver) images() (driver.Imager, error) {
	if m, ok := d.full.(driver.Imager); ok {
		return m, nil
	}
	return nil, &driver.UnsupportedError{Field: "image", Reason: "the driver " + d.full.Capabilities().Name + " has none"}
}

// ImportImage implements driver.Imager.
func (d *Driver) ImportImage(ctx context.Context, archive io.Reader, o driver.ImageOptions) ([]driver.Image, error) {
	m, err := d.images()
	if err != nil {
		return nil, err
	}
	return m.ImportImage(ctx, archive, o)
}

// PullImage implements driver.Imager.
func (d *Driver) PullImage(ctx context.Context, p driver.Pull) (driver.Image, error) {
	m, err := d.images()
	if err != nil {
		return driver.Image{}, err
	}
	return m.PullImage(ctx, p)
}

// ImageUse implements driver.Imager.
func (d *Driver) ImageUse() (u driver.ImageUse) {
	if m, err := d.images(); err == nil {
		u = m.ImageUse()
	}
	return u
}

// ExportImage implements driver.Imager.
func (d *Driver) ExportImage(ctx context.Context, key string, w io.Writer) error {
	m, err := d.images()
	if err != nil {
		return err
	}
	return m.ExportImage(ctx, key, w)
}

// Image implements driver.Imager.
func (d *Driver) Image(ctx context.Context, key string) (driver.Image, error) {
	m, err := d.images()
	if err != nil {
		return driver.Image{}, err
	}
	return m.Image(ctx, key)
}

// Images implements driver.Imager.
func (d *Driver) Images(ctx context.Context) ([]driver.Image, error) {
	m, err := d.images()
	if err != nil {
		return nil, err
	}
	return m.Images(ctx)
}

// RemoveImage implements driver.Imager.
func (d *Driver) RemoveImage(ctx context.Context, key string) (driver.Image, error) {
	m, err := d.images()
	if err != nil {
		return driver.Image{}, err
	}
	return m.RemoveImage(ctx, key)
}

// PruneImages implements driver.Imager.
func (d *Driver) PruneImages(ctx context.Context, all bool) ([]driver.Image, error) {
	m, err := d.images()
	if err != nil {
		return nil, err
	}
	return m.PruneImages(ctx, all)
}
