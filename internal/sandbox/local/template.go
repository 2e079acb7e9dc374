package local

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/tend-run/tend/internal/lib/atomicfile"
	"github.com/tend-run/tend/internal/lib/lazyregexp"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/layer"
)

const templatesName = ".templates"

// template is what is kept of one. The JSON names are the format on disk.
type template struct {
	ID      string                   `json:"id"`
	Name    string                   `json:"name"`
	Tags    map[string]*tagged       `json:"tags"`
	Builds  map[driver.BuildID]*made `json:"builds"` // those that a tag has
	Created time.Time                `json:"created"`
	Updated time.Time                `json:"updated"`

	used     int64     // sandboxes since this server began; guarded by templates.mu
	lastUsed time.Time // guarded by templates.mu
}

type tagged struct {
	Build   driver.BuildID `json:"build"`
	Created time.Time      `json:"created"`
}

// made is the result of a build.
type made struct {
	Layer layer.ID         `json:"layer,omitempty"`
	Run   driver.RunConfig `json:"run"`
	Size  driver.Size      `json:"size,omitzero"`
	Start string           `json:"start,omitempty"`
	Ready string           `json:"ready,omitempty"`
}

// templates are all that there are, and the builds of this server.
type templates struct {
	mu     sync.Mutex
	byName map[string]*template      // guarded by mu
	builds map[driver.BuildID]*build // guarded by mu
	order  []driver.BuildID          // of builds, oldest first; guarded by mu
	queue  []*build                  // guarded by mu
	more   chan struct{}             // has one when queue has

	making sync.Mutex // one makes base at a time
}

func templateHolder(id driver.BuildID) string { return "build " + string(id) }

// openTemplates reads the templates.
func (d *Driver) openTemplates() error {
	d.templates.byName, d.templates.builds = map[string]*template{}, map[driver.BuildID]*build{}
	d.templates.more = make(chan struct{}, 1)
	return readRecords(d, "template", filepath.Join(d.cfg.Dir, templatesName), func(t *template) string { return t.ID },
		func(t *template) error {
			for build, m := range t.Builds {
				if m.Layer == "" {
					continue
				}
				if err := d.layers.Hold(m.Layer, templateHolder(build)); err != nil {
					return err
				}
			}
			d.templates.byName[t.Name] = t
			return nil
		})
}

func (d *Driver) templateFile(t *template) string {
	return filepath.Join(d.cfg.Dir, templatesName, t.ID+".json")
}

// keepTemplate writes a template. templates.mu is held.
func (d *Driver) keepTemplate(t *template) error {
	b, err := json.Marshal(t)
	if err != nil {
		return err
	}
	return atomicfile.Synced(d.templateFile(t), b, 0o600)
}

// trim forgets the builds that no tag has any more. templates.mu is held.
func (d *Driver) trim(t *template) {
	for id, m := range t.Builds {
		used := false
		for _, tag := range t.Tags {
			used = used || tag.Build == id
		}
		if !used {
			d.layers.Release(m.Layer, templateHolder(id))
			delete(t.Builds, id)
		}
	}
}

// find returns the template that a key names, and the build of its tag; nil: there is
// none. In place of a tag the key may have a build that a tag has. templates.mu is held.
func (n *templates) find(key string) (*template, driver.BuildID) {
	name, tag, _ := strings.Cut(strings.ToLower(key), ":")
	t := n.named(name)
	if t == nil {
		return nil, ""
	}
	if at := t.Tags[cmp.Or(tag, driver.DefaultTag)]; at != nil {
		return t, at.Build
	}
	if id := driver.BuildID(tag); t.Builds[id] != nil {
		return t, id
	}
	return nil, ""
}

// named returns the template with a name or ID; nil: there is none. templates.mu is held.
func (n *templates) named(key string) *template {
	key = strings.ToLower(key)
	if t := n.byName[key]; t != nil {
		return t
	}
	for _, t := range n.byName {
		if t.ID == key {
			return t
		}
	}
	return nil
}

// publish makes a build what its tags name.
func (d *Driver) publish(b *build, m *made) error {
	n := &d.templates
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now().UTC()
	t, before := &template{}, n.byName[b.Name]
	if before != nil {
		*t = *before
	} else {
		*t = template{ID: b.TemplateID, Name: b.Name, Created: now}
	}
	t.Tags, t.Builds, t.Updated = maps.Clone(t.Tags), maps.Clone(t.Builds), now
	if t.Tags == nil {
		t.Tags, t.Builds = map[string]*tagged{}, map[driver.BuildID]*made{}
	}
	t.Builds[b.ID] = m
	for _, tag := range b.Tags {
		t.Tags[tag] = &tagged{b.ID, now}
	}
	if m.Layer != "" {
		if err := d.layers.Hold(m.Layer, templateHolder(b.ID)); err != nil {
			return err
		}
	}
	if err := d.keepTemplate(t); err != nil {
		d.layers.Release(m.Layer, templateHolder(b.ID))
		return err
	}
	n.byName[b.Name] = t
	d.trim(t)
	return nil
}

func (t *template) info(id driver.BuildID) driver.Template {
	m := t.Builds[id]
	out := driver.Template{
		ID: t.ID, Name: t.Name, Aliases: []string{t.Name}, Tags: slices.Sorted(maps.Keys(t.Tags)), Build: id,
		Created: t.Created, Updated: t.Updated, LastUsed: t.lastUsed, Used: t.used,
	}
	if m != nil {
		out.Size, out.Run, out.Start, out.Ready = m.Size, m.Run, m.Start, m.Ready
	}
	return out
}

// Template implements driver.Templater. There always is "base": the machine's files,
// with an account "user", and a link "python" where these have python3 alone.
func (d *Driver) Template(_ context.Context, key string) (driver.Template, error) {
	n := &d.templates
	n.mu.Lock()
	defer n.mu.Unlock()
	if t, id := n.find(key); t != nil {
		return t.info(id), nil
	}
	if isBase(key) {
		return driver.Template{ID: baseName, Name: baseName, Aliases: []string{baseName}, Tags: []string{driver.DefaultTag},
			Run: driver.RunConfig{User: baseUser}}, nil
	}
	return driver.Template{}, fmt.Errorf("template %.200q: %w", key, driver.ErrNotFound)
}

// Templates implements driver.Templater.
func (d *Driver) Templates(context.Context) ([]driver.Template, error) {
	n := &d.templates
	n.mu.Lock()
	defer n.mu.Unlock()
	var all []driver.Template
	for _, t := range n.byName {
		id := driver.BuildID("")
		if at := t.Tags[driver.DefaultTag]; at != nil {
			id = at.Build
		}
		all = append(all, t.info(id))
	}
	sort.Slice(all, func(i, j int) bool {
		return cmp.Or(all[i].Created.Compare(all[j].Created), cmp.Compare(all[i].Name, all[j].Name)) < 0
	})
	return all, nil
}

// DeleteTemplate implements driver.Templater. Sandboxes keep their files.
func (d *Driver) DeleteTemplate(_ context.Context, key string) error {
	n := &d.templates
	n.mu.Lock()
	defer n.mu.Unlock()
	t, _ := n.find(key)
	if t == nil {
		if t = n.named(key); t == nil { // by a name without a tag, whatever its tags are
			return fmt.Errorf("template %.200q: %w", key, driver.ErrNotFound)
		}
	}
	if err := os.Remove(d.templateFile(t)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("template: %w", err)
	}
	t.Tags = nil
	d.trim(t)
	delete(n.byName, t.Name)
	d.dropSpare()
	return nil
}

var tagForm = lazyregexp.New(`^[a-z0-9][a-z0-9._-]{0,127}$`)

func checkTags(tags []string) error {
	if len(tags) > driver.MaxTags {
		return &driver.InvalidError{Field: "tags", Reason: fmt.Sprintf("has %d entries; the limit is %d", len(tags), driver.MaxTags)}
	}
	for _, t := range tags {
		if !tagForm.MatchString(t) {
			return &driver.InvalidError{Field: "tags",
				Reason: fmt.Sprintf("has %.80q; 1 to 128 lower-case letters, digits, '.', '_' or '-' are allowed", t)}
		}
	}
	return nil
}

// Tag implements driver.Tagger.
func (d *Driver) Tag(_ context.Context, target string, tags []string) (driver.BuildID, error) {
	if err := checkTags(tags); err != nil {
		return "", err
	}
	n := &d.templates
	n.mu.Lock()
	defer n.mu.Unlock()
	t, id := n.find(target)
	if t == nil {
		return "", fmt.Errorf("template %.200q: %w", target, driver.ErrNotFound)
	}
	next := *t
	next.Tags, next.Updated = maps.Clone(t.Tags), time.Now().UTC()
	for _, tag := range tags {
		next.Tags[tag] = &tagged{id, next.Updated}
	}
	if len(next.Tags) > driver.MaxTags {
		return "", &driver.InvalidError{Field: "tags", Reason: fmt.Sprintf("would be %d; the limit is %d", len(next.Tags), driver.MaxTags)}
	}
	if err := d.keepTemplate(&next); err != nil {
		return "", err
	}
	n.byName[t.Name] = &next
	d.trim(&next)
	return id, nil
}

// Untag implements driver.Tagger.
func (d *Driver) Untag(_ context.Context, name string, tags []string) error {
	n := &d.templates
	n.mu.Lock()
	defer n.mu.Unlock()
	t := n.byName[strings.ToLower(name)]
	if t == nil {
		return fmt.Errorf("template %.200q: %w", name, driver.ErrNotFound)
	}
	next := *t
	next.Tags, next.Builds, next.Updated = maps.Clone(t.Tags), maps.Clone(t.Builds), time.Now().UTC()
	for _, tag := range tags {
		if next.Tags[tag] == nil {
			return fmt.Errorf("template %.200q: tag %.200q: %w", name, tag, driver.ErrNotFound)
		}
		delete(next.Tags, tag)
	}
	if err := d.keepTemplate(&next); err != nil {
		return err
	}
	n.byName[t.Name] = &next
	d.trim(&next)
	return nil
}

// Tags implements driver.Tagger.
func (d *Driver) Tags(_ context.Context, key string) ([]driver.Tag, error) {
	n := &d.templates
	n.mu.Lock()
	defer n.mu.Unlock()
	t := n.named(key)
	if t == nil {
		return nil, fmt.Errorf("template %.200q: %w", key, driver.ErrNotFound)
	}
	var all []driver.Tag
	for name, at := range t.Tags {
		all = append(all, driver.Tag{Tag: name, Build: at.Build, Created: at.Created})
	}
	sort.Slice(all, func(i, j int) bool {
		return cmp.Or(all[i].Created.Compare(all[j].Created), cmp.Compare(all[i].Tag, all[j].Tag)) < 0
	})
	return all, nil
}

// chosen is what a sandbox gets of its template: the layer is held until release.
func (d *Driver) chosen(key, by string) (id string, m made, release func(), err error) {
	n := &d.templates
	n.mu.Lock()
	if t, build := n.find(key); t != nil {
		defer n.mu.Unlock()
		t.used, t.lastUsed = t.used+1, time.Now().UTC()
		release, err = d.holdFor(t.Builds[build].Layer, by)
		return t.ID, *t.Builds[build], release, err
	}
	n.mu.Unlock()
	if !isBase(key) {
		return "", made{}, nil, fmt.Errorf("template %.200q: %w", key, driver.ErrNotFound)
	}
	top, err := d.baseLayer(by)
	return baseName, made{Layer: top, Run: driver.RunConfig{User: baseUser}}, func() { d.layers.Release(top, by) }, err
}
