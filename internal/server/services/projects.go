package services

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tend-run/tend/internal/lib/atomicfile"
	"github.com/tend-run/tend/internal/lib/errtext"
	"github.com/tend-run/tend/internal/service/config"
	"github.com/tend-run/tend/internal/service/run"
	"github.com/tend-run/tend/internal/service/supervisor"
	"github.com/tend-run/tend/process"
)

// project is the services of one file.
type project struct {
	Name string `json:"name"`
	File string `json:"file"`
	// Prefix begins the names of its services, before a '/'; "": nothing does, which is so in
	// one project.
	Prefix string `json:"prefix,omitempty"`
}

// Files of the projects. That of the file without a prefix is as it was before there were others.
const (
	projectsName = "projects"
	fileName     = "file"
	maxProjects  = 200
	maxNameBytes = 40
	maxStored    = maxProjects * (maxPath*6 + 1<<10)
)

// loadProjects reads what declares the services.
func (s *Services) loadProjects() error {
	data, err := atomicfile.Read(filepath.Join(s.c.Dir, projectsName), maxStored)
	if err == nil {
		err = json.Unmarshal(data, &s.projects)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	file, err := atomicfile.Read(filepath.Join(s.c.Dir, fileName), maxPath)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if plain := s.plain(); err == nil && (plain == nil || plain.File != string(file)) { // an older version has written it
		s.projects = slices.DeleteFunc(s.projects, func(p project) bool { return p.Prefix == "" })
		s.projects = append(s.projects, project{Name: s.freeName(string(file)), File: string(file)})
	}
	return err
}

// keepProjects writes them down. s.mu is held.
func (s *Services) keepProjects(all []project) error {
	data, err := json.Marshal(all)
	if err == nil {
		err = atomicfile.Synced(filepath.Join(s.c.Dir, projectsName), data, 0o600)
	}
	before := s.projects
	s.projects = all
	switch plain := s.plain(); {
	case err != nil:
	case plain != nil:
		err = atomicfile.Synced(filepath.Join(s.c.Dir, fileName), []byte(plain.File), 0o600)
	default:
		if err = os.Remove(filepath.Join(s.c.Dir, fileName)); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	if err != nil {
		s.projects = before
		return fmt.Errorf("note the file of the services: %w", err)
	}
	return nil
}

// plain is the project whose services have names without a prefix; nil: there is none.
func (s *Services) plain() *project {
	if i := slices.IndexFunc(s.projects, func(p project) bool { return p.Prefix == "" }); i >= 0 {
		return &s.projects[i]
	}
	return nil
}

// freeName is the name of the directory of a file, with a number if another project has it.
func (s *Services) freeName(file string) string {
	return config.ProjectName(filepath.Dir(file), func(name string) bool { return s.named(name) != nil })
}

func (s *Services) named(name string) *project {
	if i := slices.IndexFunc(s.projects, func(p project) bool { return p.Name == name }); i >= 0 {
		return &s.projects[i]
	}
	return nil
}

// running reports whether a service of a project runs, or is to.
func (s *Services) running(ctx context.Context, p *project) (bool, error) {
	all, err := s.sup.List(ctx)
	return slices.ContainsFunc(all, func(one run.Status) bool {
		prefix, _ := config.SplitName(one.Name)
		st := &one.State
		return prefix == p.Prefix && (st.Up && st.Phase != supervisor.Completed || st.Phase.Alive())
	}), away(err)
}

// target returns the projects as they are once a file declares the services of the one with a
// name ("": that without a prefix), and which one that is. s.mu is held.
func (s *Services) target(ctx context.Context, name, file string) ([]project, *project, error) {
	all := slices.Clone(s.projects)
	had := s.plain()
	if name != "" {
		if len(name) > maxNameBytes || config.ServiceName(name) != "" {
			return nil, nil, invalid("project", "is %.80q; 1 to %d letters, digits, '-', '_' and '.' are allowed, and it begins with a letter or digit",
				name, maxNameBytes)
		}
		had = s.named(name)
	}
	if had != nil && had.File == file {
		return all, had, nil
	}
	// What declares it changes, or a new project takes the place of that without a prefix.
	place := had
	if had == nil {
		place = s.plain()
	}
	if place != nil {
		runs, err := s.running(ctx, place)
		if err != nil {
			return nil, nil, err
		}
		if runs && had != nil {
			return nil, nil, errtext.New("services of "+had.File+" run; tend down ends them, and tend up -p NAME makes another project of these",
				process.ErrRunning)
		}
		if runs {
			place = nil
		}
	}
	next := project{Name: name, File: file}
	switch {
	case had != nil:
		next.Prefix = had.Prefix
		fallthrough
	case place != nil:
		all = slices.DeleteFunc(all, func(p project) bool { return p.Name == place.Name })
	case s.plain() != nil:
		next.Prefix = name
	}
	if next.Name == "" {
		next.Name = s.freeName(file)
		if had != nil && filepath.Dir(had.File) == filepath.Dir(file) {
			next.Name = had.Name
		}
	}
	if len(all) >= maxProjects {
		return nil, nil, invalid("project", "would be one of %d; the limit is %d, and tend down --forget forgets one", len(all)+1, maxProjects)
	}
	all = append(all, next)
	return all, &all[len(all)-1], nil
}

// healedElsewhere is the service that is repaired, if it is of another project; "": none is.
func (s *Services) healedElsewhere(prefix string) string {
	if s.c.Healer == nil {
		return ""
	}
	healed := s.c.Healer.Service()
	if of, _ := config.SplitName(healed); of == prefix {
		return ""
	}
	return healed
}

// forget ends the services of a project, and forgets them and it.
func (s *Services) forget(ctx context.Context, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.named(name)
	if p == nil {
		return s.unknown(name)
	}
	none := &config.Config{Prefix: p.Prefix}
	defer s.hasApplied()
	if err := s.sup.Apply(ctx, none); err != nil {
		return away(err)
	}
	if s.c.Healer != nil && s.healedElsewhere(p.Prefix) == "" {
		if err := s.c.Healer.Declare(ctx, none, p.File, nil); err != nil {
			return err
		}
	}
	return s.keepProjects(slices.DeleteFunc(slices.Clone(s.projects), func(p project) bool { return p.Name == name }))
}

// full are the names of services as a caller within a project means them. None are all of the
// project; to start, all that are not disabled.
func (s *Services) full(ctx context.Context, in string, names []string, start bool) ([]string, error) {
	if in == "" {
		return names, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.named(in)
	if p == nil {
		return nil, s.unknown(in)
	}
	if len(names) > 0 {
		out := slices.Clone(names)
		for i, name := range out {
			if p.Prefix != "" && !strings.Contains(name, "/") {
				out[i] = p.Prefix + "/" + name
			}
		}
		return out, nil
	}
	all, err := s.sup.List(ctx)
	for i := range all {
		if prefix, _ := config.SplitName(all[i].Name); prefix == p.Prefix && !(start && all[i].Rules.Disabled) {
			names = append(names, all[i].Name)
		}
	}
	if err == nil && len(names) == 0 {
		err = errtext.New(fmt.Sprintf("the project %s has no services", in), process.ErrNotFound)
	}
	return names, away(err)
}

// unknown says that there is no project of a name, and which there are. s.mu is held.
func (s *Services) unknown(name string) error {
	text := fmt.Sprintf("there is no project %.80q", name)
	for i, p := range s.projects {
		text += []string{"; there are ", ", "}[min(i, 1)] + p.Name
	}
	return errtext.New(text+"; tend up makes one", process.ErrNotFound)
}

// projectOf is the name of the project of a service.
func (s *Services) projectOf(service string) string {
	prefix, _ := config.SplitName(service)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.projects {
		if p.Prefix == prefix {
			return p.Name
		}
	}
	return prefix
}
