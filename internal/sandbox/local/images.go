package local

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/tend-run/tend/internal/lib/errtext"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/layer"
	"github.com/tend-run/tend/internal/sandbox/oci"
	"github.com/tend-run/tend/internal/sandbox/oci/archive"
	"github.com/tend-run/tend/internal/sandbox/oci/unpack"
)

const imagesName = ".images"

var _ driver.Imager = (*Driver)(nil)

// openImages reads the images.
func (d *Driver) openImages() (err error) {
	d.images, err = oci.Open(oci.Config{Dir: filepath.Join(d.cfg.Dir, imagesName), Layers: d.layers, Log: d.log, Share: d.cfg.ShareImages,
		Most: d.cfg.ImagesMost, Free: d.endSpares,
		Room: func() int64 { return roomToCopy(d.cfg.State) }})
	return err
}

// ImportImage implements driver.Imager.
func (d *Driver) ImportImage(ctx context.Context, from io.Reader, o driver.ImageOptions) (all []driver.Image, err error) {
	name := ""
	if o.Name != "" {
		ref, err := oci.ParseReference(o.Name)
		if err != nil {
			return nil, err
		}
		if ref.Digest != "" {
			return nil, &driver.InvalidError{Field: "name", Reason: "is a digest, which an image has by itself; give it a tag"}
		}
		name = ref.String()
	}
	f, err := d.images.SpoolFile()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	a, err := archive.Spool(ctx, from, f, d.images.Room())
	if err != nil {
		return nil, imageFault(err)
	}
	bundles, err := a.Images()
	if err != nil {
		return nil, err
	}
	if name != "" && len(bundles) > 1 {
		return nil, &driver.InvalidError{Field: "name", Reason: "is for one image, and the archive has several; leave it out"}
	}
	for _, b := range bundles {
		if name != "" {
			b.Names = []string{name}
		}
		m, err := d.images.Add(ctx, b, o.Say)
		if err != nil {
			return all, imageFault(err)
		}
		all = append(all, m)
	}
	return all, nil
}

// imageFault makes of an error about an image one of package driver.
func imageFault(err error) error {
	switch {
	case errors.Is(err, unpack.ErrLimit):
		return errtext.New(err.Error(), driver.ErrLimit)
	case errors.Is(err, unpack.ErrBad):
		return &driver.InvalidError{Field: "image", Reason: "cannot be unpacked: " + err.Error()}
	}
	return err
}

// ImageUse implements driver.Imager.
func (d *Driver) ImageUse() driver.ImageUse {
	u := d.images.Taken()
	u.Disk = spaceOf(d.cfg.State).total
	return u
}

// ExportImage implements driver.Imager.
func (d *Driver) ExportImage(ctx context.Context, key string, w io.Writer) error {
	p, release, err := d.images.Parts(key)
	if err != nil {
		return err
	}
	defer release()
	return archive.Write(ctx, w, &p)
}

// Image implements driver.Imager.
func (d *Driver) Image(_ context.Context, key string) (driver.Image, error) { return d.images.Get(key) }

// Images implements driver.Imager.
func (d *Driver) Images(context.Context) ([]driver.Image, error) { return d.images.List(), nil }

// RemoveImage implements driver.Imager.
func (d *Driver) RemoveImage(_ context.Context, key string) (driver.Image, error) {
	defer d.dropSpare()
	return d.images.Remove(key)
}

// PruneImages implements driver.Imager.
func (d *Driver) PruneImages(ctx context.Context, all bool) ([]driver.Image, error) {
	if all {
		d.endSpares(ctx)
	}
	return d.images.Prune(all)
}

// fromImage gives a record the files of its image, which are held until release, and what its
// programs get.
func (d *Driver) fromImage(rec *record) (release func(), err error) {
	m, err := d.images.Get(rec.Image)
	if err != nil {
		return nil, err
	}
	by := holder("create", rec.ID)
	top, run, err := d.images.Use(m.ID, by)
	if err != nil {
		return nil, err
	}
	rec.Image = m.ID
	if rec.User != "" {
		if rec.User, err = d.userOf(top, rec.User); err != nil {
			d.layers.Release(top, by)
			return nil, err
		}
	}
	rec.begin(top, run)
	return func() { d.layers.Release(top, by) }, nil
}

// userOf makes of a user as container engines write it, such as "web:staff", one that sandboxes
// know.
func (d *Driver) userOf(top layer.ID, user string) (string, error) {
	chain, err := d.layers.Chain(top)
	if err != nil {
		return "", err
	}
	view, err := unpack.OpenView(chain.Dirs)
	if err != nil {
		return "", err
	}
	defer view.Close()
	return oci.UserOf(view, user), nil
}

// beginImage has a build begin with an image. Its steps begin as root; what follows them gets
// the image's user, directory and variables where the steps say nothing. AsParent, both have the
// account user in the place of these.
func (r *builder) beginImage(ctx context.Context) error {
	s, d := &r.b.spec, r.d
	p := s.Pull
	s.Pull = driver.Pull{} // a build is remembered; credentials are not
	p.Name, p.Say = s.FromImage, func(text string) { r.b.say("info", r.step, "%s", text) }
	m, err := d.wantImage(ctx, p, s.Force)
	if err != nil {
		return err
	}
	if r.top, r.parent, err = d.images.Use(m.ID, r.by); err != nil {
		return err
	}
	if s.AsParent {
		top, err := d.withUser(ctx, r.top, r.by)
		if err != nil {
			return err
		}
		r.swap(top)
		r.parent = driver.RunConfig{User: baseUser, Env: r.parent.Env}
	}
	r.key = string(r.top)
	return nil
}

// wantImage finds an image that is here, or fetches it: anew, if its name may mean another one
// by now.
func (d *Driver) wantImage(ctx context.Context, p driver.Pull, anew bool) (driver.Image, error) {
	m, err := d.imageFor(p.Name, p.Owner)
	fetched := m.Digest != "" && (p.Owner || m.Public) // else there is nowhere to ask for it
	if errors.Is(err, driver.ErrNotFound) || err == nil && anew && fetched {
		return d.PullImage(ctx, p)
	}
	return m, err
}
