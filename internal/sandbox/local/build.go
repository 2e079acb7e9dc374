package local

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tend-run/tend/internal/core/container"
	"github.com/tend-run/tend/internal/sandbox/driver"
)

const (
	maxBuilds   = 1000    // that are remembered
	maxBuildLog = 10_000  // entries of one
	maxLogLine  = 4 << 10 // bytes of one entry
	maxLogBytes = 4 << 20 // of all entries of one build
	buildersRun = 2       // builds at the same time
	stepTimeout = 30 * time.Minute
)

// build is one that this server was asked for. A build does not outlive the server.
type build struct {
	driver.Build // what changes is guarded by mu
	spec         driver.BuildSpec

	mu   sync.Mutex
	logs []driver.LogEntry // guarded by mu
	size int               // bytes of logs; guarded by mu
	full bool              // guarded by mu
}

func (b *build) say(level, step, format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.full {
		return
	}
	text := fmt.Sprintf(format, args...)
	if b.full = len(b.logs) >= maxBuildLog || b.size >= maxLogBytes; b.full {
		level, text = "warn", "the log is full; more is left out"
	}
	b.size += len(text)
	b.logs = append(b.logs, driver.LogEntry{Time: time.Now().UTC(), Level: level,
		Message: strings.ToValidUTF8(text[:min(len(text), maxLogLine)], "\uFFFD"), Fields: map[string]string{"step": step}})
}

// Build implements driver.Templater.
func (d *Driver) Build(ctx context.Context, spec driver.BuildSpec) (driver.Build, error) {
	if err := checkBuild(&spec); err != nil {
		return driver.Build{}, err
	}
	if err := d.Unable(ctx); err != nil {
		return driver.Build{}, err
	}
	if !d.Capabilities().Snapshots {
		return driver.Build{}, &driver.UnsupportedError{Field: "build",
			Reason: "where tend may not mount there are no templates; " + container.InContainer}
	}
	if spec.FromDir != "" {
		var err error
		if spec.FromDir, err = d.mayCopy(spec.FromDir); err != nil {
			return driver.Build{}, err
		}
	}
	if spec.From != "" {
		if _, err := d.Template(ctx, spec.From); err != nil {
			return driver.Build{}, err
		}
	}
	if spec.ID == "" {
		spec.ID = driver.NewBuildID()
	}
	if len(spec.Tags) == 0 {
		spec.Tags = []string{driver.DefaultTag}
	}
	n := &d.templates
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.builds[spec.ID] != nil {
		return driver.Build{}, fmt.Errorf("build %s: %w", spec.ID, driver.ErrExists)
	}
	if old := n.byName[spec.Name]; old != nil {
		spec.TemplateID = old.ID
	} else if !driver.LikeID(spec.TemplateID) {
		spec.TemplateID = string(driver.NewID())
	}
	for len(n.order) >= maxBuilds {
		if old := n.builds[n.order[0]]; old.running() {
			return driver.Build{}, fmt.Errorf("there are %d builds that are not over: %w", maxBuilds, driver.ErrLimit)
		}
		delete(n.builds, n.order[0])
		n.order = n.order[1:]
	}
	b := &build{spec: spec, Build: driver.Build{
		ID: spec.ID, TemplateID: spec.TemplateID, Name: spec.Name, Tags: slices.Clone(spec.Tags), Created: time.Now().UTC(),
	}}
	n.builds[spec.ID], n.order, n.queue = b, append(n.order, spec.ID), append(n.queue, b)
	select {
	case n.more <- struct{}{}:
	default:
	}
	return b.Build, nil
}

// ofBuild: the sandbox is one of a build, which nobody sees.
func (s *sandbox) ofBuild() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rec.Build != ""
}

func (b *build) running() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Status < driver.BuildReady
}

// GetBuild implements driver.Templater.
func (d *Driver) GetBuild(_ context.Context, id driver.BuildID, from int) (driver.Build, []driver.LogEntry, error) {
	d.templates.mu.Lock()
	b := d.templates.builds[id]
	d.templates.mu.Unlock()
	if b == nil {
		return driver.Build{}, nil, fmt.Errorf("build %.80q: %w", string(id), driver.ErrNotFound)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Build, slices.Clone(b.logs[min(max(from, 0), len(b.logs)):]), nil
}

// runBuilds does the builds, until ctx ends.
func (d *Driver) runBuilds(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	slots := make(chan struct{}, buildersRun)
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.templates.more:
		}
		for {
			d.templates.mu.Lock()
			var b *build
			if len(d.templates.queue) > 0 {
				b, d.templates.queue = d.templates.queue[0], d.templates.queue[1:]
			}
			d.templates.mu.Unlock()
			if b == nil {
				break
			}
			select {
			case <-ctx.Done():
				return
			case slots <- struct{}{}:
			}
			wg.Go(func() {
				defer func() { <-slots }()
				d.runBuild(ctx, b)
			})
		}
	}
}

func (d *Driver) runBuild(ctx context.Context, b *build) {
	b.mu.Lock()
	b.Status = driver.BuildRunning
	b.mu.Unlock()
	r := &builder{d: d, b: b, by: templateHolder(b.ID) + " runs", step: "base"}
	m, err := r.run(ctx)
	err = errors.Join(err, r.close(context.WithoutCancel(ctx)))
	if err == nil {
		err = d.publish(b, m)
	}
	d.layers.Release(r.top, r.by)
	if err != nil {
		b.say("error", r.step, "%v", err)
	} else {
		b.say("info", "finalize", "build finished")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.Status, b.Finished = driver.BuildReady, time.Now().UTC()
	if err != nil {
		b.Status, b.Reason, b.FailedStep = driver.BuildFailed, err.Error(), r.step
		d.log.Info("build failed", slog.String("id", string(b.ID)), slog.String("step", r.step), slog.Any("err", err))
	}
}
