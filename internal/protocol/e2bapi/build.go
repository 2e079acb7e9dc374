package e2bapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/tend-run/tend/internal/lib/lazyregexp"
	"github.com/tend-run/tend/internal/sandbox/driver"
)

// maxEntries is the most lines of a build's log in one answer.
const maxEntries = 100

// templater is the driver's ability, or a typed error.
func (f *Face) templater() (driver.Templater, error) {
	if t, ok := f.driver.(driver.Templater); ok && f.store != nil {
		return t, nil
	}
	return nil, f.lacks("builds of templates")
}

var templateName = lazyregexp.New(`^([a-z0-9][a-z0-9_-]{0,127}/)?[a-z0-9][a-z0-9_-]{0,127}$`)

var tagName = lazyregexp.New(`^[a-z0-9][a-z0-9._-]{0,127}$`)

// reserve begins a build: the client learns its ID, uploads files, and starts it.
func (f *Face) reserve(w http.ResponseWriter, r *http.Request) error {
	var req struct {
		Name     string   `json:"name"`
		Alias    string   `json:"alias"`
		Tags     []string `json:"tags"`
		CPUCount float64  `json:"cpuCount"`
		MemoryMB int64    `json:"memoryMB"`
		// minFreeDiskMb: a sandbox has what the machine has.
	}
	if err := decode(r, &req); err != nil {
		return err
	}
	t, err := f.templater()
	if err != nil {
		return err
	}
	name := strings.ToLower(req.Name)
	if name == "" {
		name = strings.ToLower(req.Alias)
	}
	name, tag, tagged := strings.Cut(name, ":")
	tags := req.Tags
	if tagged && !slices.Contains(tags, tag) {
		tags = append([]string{tag}, tags...)
	}
	if len(tags) == 0 {
		tags = []string{driver.DefaultTag}
	}
	if !templateName.MatchString(name) {
		return badRequest("name is %.80q; up to 128 letters, digits, '-' and '_' are allowed, with one namespace and '/' before them", name)
	}
	if i := slices.IndexFunc(tags, func(t string) bool { return !tagName.MatchString(t) }); i >= 0 || len(tags) > driver.MaxTags {
		return badRequest("tags: %d were given, and each has up to 128 letters, digits, '.', '-' and '_'; the limit is %d",
			len(tags), driver.MaxTags)
	}
	if c := req.CPUCount; c != 0 && !(c >= driver.MinCPUs && c <= driver.MaxCPUs) {
		return badRequest("cpuCount is %v; 0 (no limit) or %v to %v are allowed", c, driver.MinCPUs, driver.MaxCPUs)
	}
	if m := req.MemoryMB; m < 0 || m > driver.MaxMemory>>20 {
		return badRequest("memoryMB is %d; 0 (no limit) to %d are allowed", m, int64(driver.MaxMemory>>20))
	}
	if f.store.sweep(time.Now()) >= maxReserved {
		return &problem{http.StatusTooManyRequests, "there are too many builds; the limit is 1000 in a day"}
	}
	b := &reserved{ID: driver.NewBuildID(), TemplateID: string(driver.NewID()), Name: name, Tags: tags, CPUs: req.CPUCount,
		Memory: req.MemoryMB << 20, Created: time.Now().UTC()}
	if old, err := t.Template(r.Context(), name); err == nil {
		b.TemplateID = old.ID
	} else if !missing(err) {
		return err
	}
	if err := f.store.save(b); err != nil {
		return err
	}
	writeJSON(w, http.StatusAccepted, map[string]any{
		"templateID": b.TemplateID, "buildID": b.ID, "public": false, "names": []string{name}, "aliases": []string{name}, "tags": tags,
	})
	return nil
}

// buildOf finds the build of a path.
func (f *Face) buildOf(r *http.Request) (driver.Templater, *reserved, error) {
	t, err := f.templater()
	if err != nil {
		return nil, nil, err
	}
	b, err := f.store.load(strings.ToLower(r.PathValue("build")))
	if err != nil {
		return nil, nil, err
	}
	if id := r.PathValue("id"); b == nil || b.TemplateID != id && b.Name != strings.ToLower(id) {
		return nil, nil, noTemplate(id + ", build " + r.PathValue("build"))
	}
	return t, b, nil
}

// buildRequest is the body that starts a build.
type buildRequest struct {
	FromImage    string   `json:"fromImage"`
	Registry     registry `json:"fromImageRegistry"`
	FromTemplate string   `json:"fromTemplate"`
	Force        bool     `json:"force"`
	Steps        []struct {
		Type      string   `json:"type"`
		Args      []string `json:"args"`
		FilesHash string   `json:"filesHash"`
		Force     bool     `json:"force"`
	} `json:"steps"`
	StartCmd string `json:"startCmd"`
	ReadyCmd string `json:"readyCmd"`
}

func (f *Face) startBuild(w http.ResponseWriter, r *http.Request) error {
	var req buildRequest
	if err := decode(r, &req); err != nil {
		return err
	}
	t, b, err := f.buildOf(r)
	if err != nil {
		return err
	}
	if b.Started {
		return &problem{http.StatusConflict, "the build was started already; ask for a new one"}
	}
	b.Started = true
	ctx := context.WithoutCancel(r.Context())
	pull, err := req.pull()
	if err != nil {
		// The SDKs show the line of the program that a failed step came from.
		b.Refused = err.Error()
	} else {
		spec := driver.BuildSpec{
			ID: b.ID, TemplateID: b.TemplateID, Name: b.Name, Tags: b.Tags, Size: driver.Size{CPUs: b.CPUs, Memory: b.Memory},
			From: req.FromTemplate, AsParent: true, Start: req.StartCmd, Ready: req.ReadyCmd, Force: req.Force, Blob: f.store.open,
			FromImage: pull.Name, Pull: pull,
		}
		for _, s := range req.Steps {
			spec.Steps = append(spec.Steps, driver.Step{Kind: s.Type, Args: s.Args, Hash: s.FilesHash, Force: s.Force})
		}
		if spec.From != "" {
			if _, err := t.Template(ctx, spec.From); missing(err) && isBase(spec.From) {
				spec.From = ""
			}
		}
		if err := f.prepare(ctx, spec.From); err != nil {
			b.Refused = err.Error()
		} else if b.Refused, err = begin(ctx, t, spec); err != nil {
			return err
		}
	}
	if err := f.store.save(b); err != nil {
		return err
	}
	w.WriteHeader(http.StatusAccepted)
	return nil
}

// begin starts a build. refused says why its base is none: as with an image, the step that named it fails.
func begin(ctx context.Context, t driver.Templater, spec driver.BuildSpec) (refused string, err error) {
	_, err = t.Build(ctx, spec)
	if bad, ok := errors.AsType[*driver.InvalidError](err); ok && bad.Field == "image" {
		return err.Error(), nil
	} else if errors.Is(err, driver.ErrNotFound) {
		return fmt.Sprintf("template %.200q not found", spec.From), nil
	}
	return "", err
}

// buildEntry is a line of a build's log.
type buildEntry struct {
	Timestamp string `json:"timestamp"`
	Message   string `json:"message"`
	Level     string `json:"level"`
	Step      string `json:"step,omitempty"`
}

func entriesOf(logs []driver.LogEntry) ([]buildEntry, []string) {
	entries, lines := make([]buildEntry, len(logs)), make([]string, len(logs))
	for i, l := range logs {
		entries[i], lines[i] = buildEntry{stamp(l.Time), l.Message, l.Level, l.Fields["step"]}, l.Message
	}
	return entries, lines
}

// progress is what is known of a build, with its log from an index on.
func (f *Face) progress(ctx context.Context, t driver.Templater, b *reserved, from int) (driver.Build, []driver.LogEntry, error) {
	waiting := driver.Build{ID: b.ID, TemplateID: b.TemplateID, Name: b.Name, Tags: b.Tags, Created: b.Created}
	failed := func(step, reason string) (driver.Build, []driver.LogEntry, error) {
		waiting.Status, waiting.Reason, waiting.FailedStep = driver.BuildFailed, reason, step
		return waiting, nil, nil
	}
	if b.Refused != "" {
		return failed("base", b.Refused)
	}
	build, logs, err := t.GetBuild(ctx, b.ID, from)
	switch {
	case !errors.Is(err, driver.ErrNotFound):
		return build, logs, err
	case b.Started:
		return failed("base", "the build did not come to its end before the server was started again; build again")
	}
	return waiting, nil, nil
}

func (f *Face) buildStatus(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	from, _, err := number(q, "logsOffset", 0, 1<<31-1)
	if err != nil {
		return err
	}
	limit, given, err := number(q, "limit", 0, maxEntries)
	if err != nil {
		return err
	}
	if !given {
		limit = maxEntries
	}
	t, b, err := f.buildOf(r)
	if err != nil {
		return err
	}
	build, logs, err := f.progress(r.Context(), t, b, int(from))
	if err != nil {
		return err
	}
	entries, lines := entriesOf(logs[:min(len(logs), int(limit))])
	answer := map[string]any{"templateID": b.TemplateID, "buildID": b.ID, "status": build.Status.String(), "logs": lines,
		"logEntries": entries}
	if build.Status == driver.BuildFailed {
		answer["reason"] = map[string]any{"message": build.Reason, "step": build.FailedStep, "logEntries": []any{}}
	}
	writeJSON(w, http.StatusOK, answer)
	return nil
}

// buildLogs answers with the log of a build by time.
func (f *Face) buildLogs(w http.ResponseWriter, r *http.Request) error {
	q, err := logQuery(r.URL.Query(), "cursor")
	if err != nil {
		return err
	}
	t, b, err := f.buildOf(r)
	if err != nil {
		return err
	}
	_, logs, err := f.progress(r.Context(), t, b, 0)
	if err != nil {
		return err
	}
	if q.Backward {
		slices.Reverse(logs)
	}
	logs = slices.DeleteFunc(logs, func(l driver.LogEntry) bool {
		return !q.From.IsZero() && (q.Backward && l.Time.After(q.From) || !q.Backward && l.Time.Before(q.From)) ||
			!q.matches(slices.Index(levels, l.Level), l.Message)
	})
	entries, _ := entriesOf(logs[:min(len(logs), q.Limit)])
	writeJSON(w, http.StatusOK, map[string]any{"logs": entries})
	return nil
}
