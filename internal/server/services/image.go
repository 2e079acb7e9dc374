package services

import (
	"context"
	"errors"
	"slices"

	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/service/config"
	"github.com/tend-run/tend/process"
)

// noteService is the note of a sandbox that was made for a service with an image: its name.
const noteService = "tend.service"

// place gives each service with an image a sandbox of that image, and what the image starts.
// The sandbox of an image that a service had before stays until its last run has ended, and is
// removed by the next call. s.mu is held.
func (s *Services) place(ctx context.Context, declared *config.Config) error {
	var used []string
	for _, name := range declared.Names() {
		one := declared.Services[name]
		if one.Image == "" {
			continue
		}
		if err := s.placeOne(ctx, one); err != nil {
			return err
		}
		used = append(used, one.Sandbox)
	}
	if s.c.Driver == nil {
		return nil
	}
	all, err := s.sup.List(ctx)
	if err != nil {
		return away(err)
	}
	for i := range all {
		used = append(used, all[i].Rules.Sandbox)
	}
	sandboxes, err := s.c.Driver.List(ctx)
	if err != nil {
		return err
	}
	for i := range sandboxes {
		if sb := &sandboxes[i]; sb.Notes[noteService] != "" && !slices.Contains(used, sb.Name) && !slices.Contains(used, string(sb.ID)) {
			if err := s.removeIdle(ctx, sb.ID); err != nil && !errors.Is(err, driver.ErrNotFound) {
				s.c.Log.Warn("the sandbox of an image that a service had cannot be removed", "sandbox", sb.Name, "err", err)
			}
		}
	}
	return nil
}

// placeOne does it for one service.
func (s *Services) placeOne(ctx context.Context, one *config.Service) error {
	field := "services." + one.Name + ".image"
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

// removeIdle removes a sandbox in which nothing runs.
func (s *Services) removeIdle(ctx context.Context, id driver.ID) error {
	sb, err := s.c.Driver.Get(ctx, string(id))
	if err != nil {
		return err
	}
	alive, err := sb.Processes().List(ctx, process.Filter{Live: true})
	if err != nil && !errors.Is(err, driver.ErrStopped) || len(alive) > 0 {
		return err
	}
	return sb.Destroy(ctx)
}
