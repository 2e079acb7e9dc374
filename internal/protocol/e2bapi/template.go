package e2bapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/tend-run/tend/internal/lib/lazyregexp"
	"github.com/tend-run/tend/internal/sandbox/driver"
)

// baseTemplate is the driver's default: E2B's clients know one of this name.
const baseTemplate = "base"

// mcpTemplate is what the SDKs create a sandbox from that has options for MCP: their
// maker's, with a gateway that needs a container engine inside.
const mcpTemplate = "mcp-gateway"

// prebuilt is the alias of a template that Mastra's E2B provider builds for itself if
// nobody has: base, with programs that mount buckets. It looks for them before it
// uses them, so base will do until it is built.
var prebuilt = lazyregexp.New(`^mastra-[0-9a-f]{16}$`)

func isBase(name string) bool {
	return name == baseTemplate || name == baseTemplate+":"+driver.DefaultTag || prebuilt.MatchString(name)
}

func (f *Face) templatePaths() map[string]handler {
	return map[string]handler{
		"POST /v3/templates":                        f.reserve,
		"GET /templates/{id}/files/{hash}":          f.fileLink,
		"POST /v2/templates/{id}/builds/{build}":    f.startBuild,
		"GET /templates/{id}/builds/{build}/status": f.buildStatus,
		"GET /templates/{id}/builds/{build}/logs":   f.buildLogs,
		"GET /templates":                            f.templates,
		"GET /v2/templates":                         f.templates,
		"GET /default-templates":                    f.templates,
		"GET /templates/{id}":                       f.template,
		"DELETE /templates/{id}":                    f.deleteTemplate,
		"PATCH /templates/{id}":                     f.patchTemplate,
		"PATCH /v2/templates/{id}":                  f.patchTemplate,
		"POST /templates/tags":                      f.tag,
		"DELETE /templates/tags":                    f.untag,
		"GET /templates/{id}/tags":                  f.tags,
		"POST /templates":                           noOldBuilds,
		"POST /v2/templates":                        noOldBuilds,
		"POST /templates/{id}":                      noOldBuilds,
		"POST /templates/{id}/builds/{build}":       noOldBuilds,
	}
}

func noOldBuilds(http.ResponseWriter, *http.Request) error {
	return unsupported("a build from a Dockerfile", "use Template() of an SDK from 2.0 on, or POST /v3/templates")
}

// preparing is how long a creation waits for a template that is built for it: the SDKs wait for 60 seconds.
const preparing = 55 * time.Second

// prepare returns when a template of the server's own is there; others are left alone.
func (f *Face) prepare(ctx context.Context, id string) error {
	prepare := f.prepared[id]
	if prepare == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, preparing)
	defer cancel()
	return prepare(ctx)
}

// from fills in what a sandbox is made from. The word of a client can be a template
// or a snapshot; an ID is a snapshot's first, and a name a template's, so that
// nobody's name hides what was there before.
func (f *Face) from(ctx context.Context, spec *driver.Spec, id string) error {
	id = cmp.Or(id, baseTemplate)
	if len(id) > 2*driver.MaxName {
		return badRequest("templateID has %d bytes; the limit is %d", len(id), 2*driver.MaxName)
	}
	spec.Notes[noteTemplate] = id
	if err := f.prepare(ctx, id); err != nil {
		return err
	}
	asTemplate := func() error {
		t, err := f.getTemplate(ctx, id)
		if err == nil {
			spec.Template = id
			spec.Notes[noteTemplate] = cmp.Or(t.ID, id)
		}
		return err
	}
	asSnapshot := func() error {
		s, err := f.getSnapshot(ctx, id)
		if err == nil {
			spec.Snapshot = string(s.ID)
		}
		return err
	}
	ways := []func() error{asTemplate, asSnapshot}
	if driver.LikeID(id) {
		slices.Reverse(ways)
	}
	for _, way := range ways {
		if err := way(); !missing(err) {
			return err
		}
	}
	switch {
	case id == mcpTemplate:
		return unsupported("mcp without a template "+mcpTemplate, "build one that has the program "+mcpTemplate+" (Template.build(…, '"+
			mcpTemplate+"')), or run MCP servers as commands of the sandbox")
	case !isBase(id):
		_, err := f.known(ctx, id) // says whether it is the tag that is not there
		return cmp.Or(err, noTemplate(id))
	}
	spec.Notes[noteTemplate] = baseTemplate
	_, err := f.getTemplate(ctx, baseTemplate)
	if err == nil { // for its user
		spec.Template = baseTemplate
	} else if !missing(err) {
		return err
	}
	return nil
}

// getTemplate finds a template; missing(err): there is none.
func (f *Face) getTemplate(ctx context.Context, key string) (driver.Template, error) {
	t, ok := f.driver.(driver.Templater)
	if !ok {
		return driver.Template{}, driver.ErrNotFound
	}
	return t.Template(ctx, key)
}

// known finds a template by the word of a client, and a build of it only if the word has
// a tag: a template without the default tag exists, too. base is there though nobody
// built it.
func (f *Face) known(ctx context.Context, key string) (driver.Template, error) {
	t, err := f.getTemplate(ctx, key)
	switch {
	case !missing(err):
		return t, err
	case isBase(key):
		return driver.Template{ID: baseTemplate, Name: baseTemplate, Aliases: []string{baseTemplate}}, nil
	case f.prepared[key] != nil: // it is built when a sandbox is made from it
		return driver.Template{ID: key, Name: key, Aliases: []string{key}, Created: f.began, Updated: f.began}, nil
	}
	name, tag, tagged := strings.Cut(key, ":")
	t, err = f.named(ctx, strings.ToLower(name))
	switch {
	case missing(err):
		return t, noTemplate(key)
	case err == nil && tagged:
		return t, &problem{http.StatusNotFound, fmt.Sprintf("404: tag %.100q does not exist for template %.100q", tag, name)}
	}
	return t, err
}

// named finds a template by its name or ID, whatever its tags are; missing(err): there is
// none.
func (f *Face) named(ctx context.Context, key string) (t driver.Template, err error) {
	d, ok := f.driver.(driver.Templater)
	if !ok {
		return t, driver.ErrNotFound
	}
	all, err := d.Templates(ctx)
	if err != nil {
		return t, err
	}
	i := slices.IndexFunc(all, func(t driver.Template) bool { return t.ID == key || t.Name == key || slices.Contains(t.Aliases, key) })
	if i < 0 {
		return t, driver.ErrNotFound
	}
	return all[i], nil
}

// alias answers whether there is a template of that name.
func (f *Face) alias(w http.ResponseWriter, r *http.Request) error {
	t, err := f.known(r.Context(), r.PathValue("alias"))
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, map[string]any{"templateID": t.ID, "public": t.ID == baseTemplate})
	return nil
}

// templateJSON is a template in lists.
type templateJSON struct {
	TemplateID    string   `json:"templateID"`
	BuildID       string   `json:"buildID"`
	CPUCount      int64    `json:"cpuCount"`
	MemoryMB      int64    `json:"memoryMB"`
	DiskSizeMB    int64    `json:"diskSizeMB"`
	Public        bool     `json:"public"`
	Aliases       []string `json:"aliases"`
	Names         []string `json:"names"`
	CreatedAt     string   `json:"createdAt"`
	UpdatedAt     string   `json:"updatedAt"`
	CreatedBy     *string  `json:"createdBy"` // nobody in particular
	LastSpawnedAt *string  `json:"lastSpawnedAt"`
	SpawnCount    int64    `json:"spawnCount"`
	BuildCount    int64    `json:"buildCount"`
	EnvdVersion   string   `json:"envdVersion"`
	BuildStatus   string   `json:"buildStatus"`
}

func (f *Face) templateJSON(t *driver.Template) templateJSON {
	names := t.Aliases
	if !slices.Contains(names, t.Name) && t.Name != "" {
		names = append([]string{t.Name}, names...)
	}
	if names == nil {
		names = []string{}
	}
	j := templateJSON{
		TemplateID: t.ID, BuildID: string(t.Build), Public: t.ID == baseTemplate, Aliases: names, Names: names,
		CPUCount: cmp.Or(int64(math.Ceil(t.Size.CPUs)), f.machine.cpus), MemoryMB: cmp.Or(t.Size.Memory>>20, f.machine.memoryMB),
		DiskSizeMB: cmp.Or(t.Size.Disk>>20, f.machine.diskMB),
		CreatedAt:  stamp(t.Created), UpdatedAt: stamp(t.Updated), SpawnCount: t.Used, BuildCount: 1, EnvdVersion: f.version,
		BuildStatus: "ready",
	}
	if !t.LastUsed.IsZero() {
		at := stamp(t.LastUsed)
		j.LastSpawnedAt = &at
	}
	return j
}

func (f *Face) templates(w http.ResponseWriter, r *http.Request) error {
	list := []templateJSON{}
	if t, ok := f.driver.(driver.Templater); ok {
		all, err := t.Templates(r.Context())
		if err != nil && !missing(err) {
			return err
		}
		for i := range all {
			list = append(list, f.templateJSON(&all[i]))
		}
	}
	if !slices.ContainsFunc(list, func(t templateJSON) bool { return slices.Contains(t.Names, baseTemplate) }) {
		list = append(list, f.templateJSON(&driver.Template{ID: baseTemplate, Name: baseTemplate, Created: f.began, Updated: f.began}))
	}
	writeJSON(w, http.StatusOK, list)
	return nil
}

// template answers with a template and the build that it has.
func (f *Face) template(w http.ResponseWriter, r *http.Request) error {
	t, err := f.known(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	j := f.templateJSON(&t)
	build := map[string]any{
		"buildID": j.BuildID, "status": j.BuildStatus, "createdAt": j.CreatedAt, "updatedAt": j.UpdatedAt, "finishedAt": j.UpdatedAt,
		"cpuCount": j.CPUCount, "memoryMB": j.MemoryMB, "diskSizeMB": j.DiskSizeMB, "envdVersion": j.EnvdVersion,
	}
	writeJSON(w, http.StatusOK, map[string]any{
		"templateID": j.TemplateID, "public": j.Public, "aliases": j.Aliases, "names": j.Names, "createdAt": j.CreatedAt,
		"updatedAt":     j.UpdatedAt,
		"lastSpawnedAt": j.LastSpawnedAt, "spawnCount": j.SpawnCount, "builds": []any{build},
	})
	return nil
}

// deleteTemplate removes a template or snapshot, in the order of from.
func (f *Face) deleteTemplate(w http.ResponseWriter, r *http.Request) error {
	ctx, id := context.WithoutCancel(r.Context()), r.PathValue("id")
	asTemplate := func() error {
		t, ok := f.driver.(driver.Templater)
		if !ok {
			return driver.ErrNotFound
		}
		return t.DeleteTemplate(ctx, id)
	}
	ways := []func() error{asTemplate, func() error { return f.deleteSnapshot(ctx, id) }}
	if driver.LikeID(id) {
		slices.Reverse(ways)
	}
	for _, way := range ways {
		err := way()
		if missing(err) {
			continue
		}
		if err != nil {
			return err
		}
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	return noTemplate(id)
}

// patchTemplate takes a change of who sees a template, which has no meaning here:
// whoever has the key sees all.
func (f *Face) patchTemplate(w http.ResponseWriter, r *http.Request) error {
	var req struct {
		Public *bool `json:"public"`
	}
	if err := decode(r, &req); err != nil {
		return err
	}
	t, err := f.known(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, map[string]any{"names": f.templateJSON(&t).Names})
	return nil
}

func (f *Face) tagger() (driver.Tagger, error) {
	if t, ok := f.driver.(driver.Tagger); ok {
		return t, nil
	}
	return nil, f.lacks("tags of templates")
}

func (f *Face) tag(w http.ResponseWriter, r *http.Request) error {
	var req struct {
		Target string   `json:"target"`
		Tags   []string `json:"tags"`
	}
	if err := decode(r, &req); err != nil {
		return err
	}
	if len(req.Tags) > driver.MaxTags {
		return badRequest("tags has %d entries; the limit is %d", len(req.Tags), driver.MaxTags)
	}
	t, err := f.tagger()
	if err != nil {
		return err
	}
	build, err := t.Tag(context.WithoutCancel(r.Context()), req.Target, req.Tags)
	if errors.Is(err, driver.ErrNotFound) {
		return noTemplate(req.Target)
	}
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusCreated, map[string]any{"buildID": build, "tags": req.Tags})
	return nil
}

func (f *Face) untag(w http.ResponseWriter, r *http.Request) error {
	var req struct {
		Name string   `json:"name"`
		Tags []string `json:"tags"`
	}
	if err := decode(r, &req); err != nil {
		return err
	}
	t, err := f.tagger()
	if err != nil {
		return err
	}
	err = t.Untag(context.WithoutCancel(r.Context()), req.Name, req.Tags)
	if errors.Is(err, driver.ErrNotFound) {
		return noTemplate(req.Name)
	}
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (f *Face) tags(w http.ResponseWriter, r *http.Request) error {
	t, err := f.tagger()
	if err != nil {
		return err
	}
	tags, err := t.Tags(r.Context(), r.PathValue("id"))
	if errors.Is(err, driver.ErrNotFound) {
		return noTemplate(r.PathValue("id"))
	}
	if err != nil {
		return err
	}
	list := make([]map[string]any, len(tags))
	for i, tag := range tags {
		list[i] = map[string]any{"tag": tag.Tag, "buildID": tag.Build, "createdAt": tag.Created.UTC().Format(time.RFC3339Nano)}
	}
	writeJSON(w, http.StatusOK, list)
	return nil
}
