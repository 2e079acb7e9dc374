package multi

import (
	"context"

	"github.com/tend-run/tend/internal/sandbox/driver"
)

var (
	_ driver.Templater = (*Driver)(nil)
	_ driver.Tagger    = (*Driver)(nil)
)

// templates are those of sandboxes that are isolated: there are no others.
func (d *Driver) templates() (driver.Templater, error) {
	if t, ok := d.full.(driver.Templater); ok {
		return t, nil
	}
	return nil, &driver.UnsupportedError{Field: "template", Reason: "the driver " + d.full.Capabilities().Name + " has none"}
}

func (d *Driver) tags() (driver.Tagger, error) {
	if t, ok := d.full.(driver.Tagger); ok {
		return t, nil
	}
	return nil, &driver.UnsupportedError{Field: "tags", Reason: "the driver " + d.full.Capabilities().Name + " has none"}
}

// Build implements driver.Templater.
func (d *Driver) Build(ctx context.Context, spec driver.BuildSpec) (driver.Build, error) {
	t, err := d.templates()
	if err != nil {
		return driver.Build{}, err
	}
	return t.Build(ctx, spec)
}

// GetBuild implements driver.Templater.
func (d *Driver) GetBuild(ctx context.Context, id driver.BuildID, logsFrom int) (driver.Build, []driver.LogEntry, error) {
	t, err := d.templates()
	if err != nil {
		return driver.Build{}, nil, err
	}
	return t.GetBuild(ctx, id, logsFrom)
}

// Template implements driver.Templater.
func (d *Driver) Template(ctx context.Context, key string) (driver.Template, error) {
	t, err := d.templates()
	if err != nil {
		return driver.Template{}, err
	}
	return t.Template(ctx, key)
}

// Templates implements driver.Templater.
func (d *Driver) Templates(ctx context.Context) ([]driver.Template, error) {
	t, err := d.templates()
	if err != nil {
		return nil, err
	}
	return t.Templates(ctx)
}

// DeleteTemplate implements driver.Templater.
func (d *Driver) DeleteTemplate(ctx context.Context, key string) error {
	t, err := d.templates()
	if err != nil {
		return err
	}
	return t.DeleteTemplate(ctx, key)
}

// Tag implements driver.Tagger.
func (d *Driver) Tag(ctx context.Context, target string, tags []string) (driver.BuildID, error) {
	t, err := d.tags()
	if err != nil {
		return "", err
	}
	return t.Tag(ctx, target, tags)
}

// Untag implements driver.Tagger.
func (d *Driver) Untag(ctx context.Context, name string, tags []string) error {
	t, err := d.tags()
	if err != nil {
		return err
	}
	return t.Untag(ctx, name, tags)
}

// Tags implements driver.Tagger.
func (d *Driver) Tags(ctx context.Context, key string) ([]driver.Tag, error) {
	t, err := d.tags()
	if err != nil {
		return nil, err
	}
	return t.Tags(ctx, key)
}
