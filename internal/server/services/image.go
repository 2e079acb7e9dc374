package services

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/service/config"
	"github.com/tend-run/tend/internal/service/run"
	"github.com/tend-run/tend/process"
)

// noteService is the note of a sandbox that was made for a service with an image: its name.
const noteService = "tend.service"

// place gives each service with an image a sandbox of that image, and what the image starts.
// s.mu is held until the supervisor knows of it, for the sake of removeUnused.
func (s *Services) place(ctx context.Context, declared *config.Config) error {
	for _, name := range declared.Names() {
		if one := declared.Services[name]; one.Image != "" {
			if err := s.placeOne(ctx, one); err != nil {
				return err
			}
		}
	}
	return nil
}

// leastPause and mostPause are between looks whether the last run in a sandbox that no service
// has any more has ended.
const leastPause, mostPause = time.Second, 30 * time.Second

// clean removes the sandboxes of images that services had before, after each Apply and at the
// start of a server, as soon as nothing runs in them, until ctx ends.
func (s *Services) clean(ctx context.Context) {
	for pause := leastPause; ; pause = min(2*pause, mostPause) {
		again := make(<-chan time.Time) // never
		if s.removeUnused(ctx) {
			again = time.After(pause)
		}
		select {
		case <-ctx.Done():
			return
		case <-s.applied:
			pause = leastPause / 2
		case <-again:
		}
	}
}

// removeUnused reports whether there are sandboxes that will have to be removed.
func (s *Services) removeUnused(ctx context.Context) (left bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all, err := s.sup.List(ctx)
	if err != nil {
		return false // it has ended
	}
	sandboxes, err := s.c.Driver.List(ctx)
	for i := range sandboxes {
		sb := &sandboxes[i]
		if sb.Notes[noteService] == "" || slices.ContainsFunc(all, func(one run.Status) bool {
			return one.Rules.Sandbox == sb.Name || one.Rules.Sandbox == string(sb.ID)
		}) {
			continue
		}
		gone, err := s.removeIdle(ctx, sb.ID)
		if err != nil && !errors.Is(err, driver.ErrNotFound) {
			s.c.Log.Warn("the sandbox of an image that a service had cannot be removed", "sandbox", sb.Name, "err", err)
		}
		left = left || !gone && err == nil
	}
	return left || err != nil
}

// placeOne does it for one service.
func (s *Services) placeOne(ctx context.Context, one *config.Service) error {
	_, short := config.SplitName(one.Name)
	field := "services." + short + ".image"
	imager, ok := s.c.Driver.(driver.Imager)
	if !ok {
		return invalid(field, "cannot be used: this server has no images")
	}
	image, err := imager.Image(ctx, one.Image)
	switch {
	case errors.Is(err, driver.ErrNotFound):
		return invalid(field, "is %.200s, which is not here; tend image pull %[1]s fetches it", one.Image)
	case errors.Is(err, process.ErrUnsupported):
		return invalid(field, "cannot be used: %v", err)
	case err != nil:
		return err
	}
	if err := one.SetImage(image.ID, image.Entrypoint, image.Cmd); err != nil {
		return err
	}
	sb, err := s.c.Driver.Get(ctx, one.Sandbox)
	if errors.Is(err, driver.ErrNotFound) {
		_, err = s.c.Driver.Create(ctx, driver.Spec{Name: one.Sandbox, Image: image.ID, Isolation: driver.IsolationFull,
			Network: driver.Network{Mode: driver.NetworkOwn}, Notes: map[string]string{noteService: one.Name}})
		if err != nil {
			return invalid(field, "is %.200s, of which no sandbox can be made: %v", one.Image, err)
		}
		return nil
	}
	if err != nil {
		return err
	}
	info, err := sb.Info(ctx)
	if err == nil && (info.Notes[noteService] != one.Name || info.Image != image.ID) {
		return invalid(field, "needs the name %s for its sandbox, and another one has it", one.Sandbox)
	}
	return err
}

// removeIdle removes a sandbox if nothing runs in it.
func (s *Services) removeIdle(ctx context.Context, id driver.ID) (gone bool, err error) {
	sb, err := s.c.Driver.Get(ctx, string(id))
	if err != nil {
		return false, err
	}
	alive, err := sb.Processes().List(ctx, process.Filter{Live: true})
	if err != nil && !errors.Is(err, driver.ErrStopped) || len(alive) > 0 {
		return false, err
	}
	return true, sb.Destroy(ctx)
}
