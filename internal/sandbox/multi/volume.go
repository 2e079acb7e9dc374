package multi

import (
	"context"

	"github.com/tend-run/tend/internal/sandbox/driver"
)

var _ driver.Volumer = (*Driver)(nil)

// volumes are those of sandboxes that are isolated: there are no others.
func (d *Driver) volumes() (driver.Volumer, error) {
	if v, ok := d.full.(driver.Volumer); ok {
		return v, nil
	}
	return nil, &driver.UnsupportedError{Field: "volumes", Reason: "the driver " + d.full.Capabilities().Name + " has none"}
}

// CreateVolume implements driver.Volumer.
func (d *Driver) CreateVolume(ctx context.Context, name string) (driver.Volume, error) {
	v, err := d.volumes()
	if err != nil {
		return driver.Volume{}, err
	}
	return v.CreateVolume(ctx, name)
}

// Volumes implements driver.Volumer.
func (d *Driver) Volumes(ctx context.Context) ([]driver.Volume, error) {
	v, err := d.volumes()
	if err != nil {
		return nil, err
	}
	return v.Volumes(ctx)
}

// GetVolume implements driver.Volumer.
func (d *Driver) GetVolume(ctx context.Context, id driver.VolumeID) (driver.Volume, error) {
	v, err := d.volumes()
	if err != nil {
		return driver.Volume{}, err
	}
	return v.GetVolume(ctx, id)
}

// DeleteVolume implements driver.Volumer.
func (d *Driver) DeleteVolume(ctx context.Context, id driver.VolumeID) error {
	v, err := d.volumes()
	if err != nil {
		return err
	}
	return v.DeleteVolume(ctx, id)
}

// VolumeFiles implements driver.Volumer.
func (d *Driver) VolumeFiles(ctx context.Context, id driver.VolumeID) (driver.VolumeFiles, error) {
	v, err := d.volumes()
	if err != nil {
		return nil, err
	}
	return v.VolumeFiles(ctx, id)
}
