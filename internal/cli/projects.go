package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tend-run/tend/internal/service/config"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/sdk/go"
)

// projectFlag is of the verbs about services.
type projectFlag struct {
	Project string `short:"p" placeholder:"NAME" complete:"project" help:"The project (tend projects lists them). Default: the one of this directory, or of the nearest directory above."`
}

// keptServices are the services of a project by the names in its file, or all of the daemon.
type keptServices struct {
	d       *daemon
	project string // "": all
	several bool   // there are others
}

// kept returns the services that a command is about. Whoever names none of them means those of
// one project.
func (f *projectFlag) kept(ctx context.Context, d *daemon, named bool) (*keptServices, error) {
	all, here, err := d.projects(ctx)
	k := &keptServices{d: d, project: here, several: len(all) > 1}
	switch {
	case err != nil:
		return nil, serviceError(err)
	case f.Project != "":
		k.project = f.Project
	case here == "" && !named && k.several:
		return nil, usageError("there are several projects, and none is of this directory; name one by -p: " + listed(mapped(all, nameOfProject)))
	}
	return k, nil
}

func nameOfProject(p *tend.ServiceProject) string { return p.Name }

// projects returns those of the daemon, and the name of the one whose file is in this directory or
// the nearest above; "": none is.
func (d *daemon) projects(ctx context.Context) (all []tend.ServiceProject, here string, err error) {
	all, err = d.ServiceProjects(ctx)
	if err != nil || len(all) == 0 {
		return nil, "", err
	}
	for dir := range upwards() {
		if i := slices.IndexFunc(all, func(p tend.ServiceProject) bool { return filepath.Dir(p.File) == dir }); i >= 0 {
			return all, all[i].Name, nil
		}
		if _, err := os.Stat(filepath.Join(dir, config.FileName)); err == nil {
			break // of a project that is not up
		}
	}
	return all, "", nil
}

// upwards yields this directory and all above.
func upwards() iter.Seq[string] {
	return func(yield func(string) bool) {
		dir, err := os.Getwd()
		for before := ""; err == nil && dir != before && yield(dir); dir = filepath.Dir(dir) {
			before = dir
		}
	}
}

// full is the name of the service that a word means in this directory; the word itself if it means
// none, or one whose name that is.
func (d *daemon) full(ctx context.Context, word string) string {
	if !d.machine || strings.Contains(word, "/") {
		return word
	}
	if d.here == nil {
		d.here = map[string]string{}
		if all, here, err := d.projects(ctx); err == nil && len(all) > 1 && here != "" {
			services, _ := d.Services(ctx) // else the words mean what they do elsewhere
			for _, s := range services {
				if s.Project == here {
					d.here[shortName(s.Name)] = s.Name
				}
			}
		}
	}
	if name := d.here[word]; name != "" {
		return name
	}
	return word
}

func shortName(name string) string {
	_, short := config.SplitName(name)
	return short
}

// of are those of the project.
func (k *keptServices) of(all []tend.Service) []tend.Service {
	if k.project == "" {
		return all
	}
	all = slices.DeleteFunc(slices.Clone(all), func(s tend.Service) bool { return s.Project != "" && s.Project != k.project })
	for i := range all {
		all[i].Name = shortName(all[i].Name)
	}
	return all
}

func (k *keptServices) list(ctx context.Context) ([]tend.Service, error) {
	all, err := k.d.Services(ctx)
	return k.of(all), serviceError(err)
}

func (k *keptServices) watch(ctx context.Context) iter.Seq2[[]tend.Service, error] {
	return func(yield func([]tend.Service, error) bool) {
		for all, err := range k.d.WatchServices(ctx) {
			if !yield(k.of(all), serviceError(err)) {
				return
			}
		}
	}
}

// declare returns the project that a file declares, for tend up: the one that was named, that of
// the file's directory, or a new one of its name.
func (f *projectFlag) declare(ctx context.Context, d *daemon, dir string) (*keptServices, error) {
	all, err := d.ServiceProjects(ctx)
	if err != nil {
		return nil, serviceError(err)
	}
	k := &keptServices{d: d, project: f.Project, several: len(all) > 1}
	if i := slices.IndexFunc(all, func(p tend.ServiceProject) bool { return filepath.Dir(p.File) == dir }); k.project == "" && i >= 0 {
		k.project = all[i].Name
	}
	if k.project == "" {
		k.project = config.ProjectName(dir, func(name string) bool {
			return slices.ContainsFunc(all, func(p tend.ServiceProject) bool { return p.Name == name })
		})
	}
	return k, nil
}

// aboveHere is the file of services of the nearest directory above, if there is none here. One of
// another user is not taken: it says what is run.
func (inv *invocation) aboveHere(path string) (string, error) {
	if path != config.FileName {
		return path, nil
	}
	below := false
	for dir := range upwards() {
		found := filepath.Join(dir, path)
		info, err := os.Stat(found)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			below = true
			continue
		case err != nil || !below:
			return path, nil
		case !ownedByUs(info):
			return "", fmt.Errorf("%s belongs to another user, and is not taken from below; tend up -f %[1]s takes it", found)
		}
		inv.note("the services are those of %s", printable(found))
		return found, nil
	}
	return path, nil
}

type projectsCmd struct{}

// projectFacts is a project as JSON.
type projectFacts struct {
	Name     string `json:"name"`
	File     string `json:"file"`
	Services int    `json:"services"`
	Ready    int    `json:"ready"`
	Failed   int    `json:"failed"`
}

// Ask lists the projects.
func (*projectsCmd) Ask(ctx context.Context, inv *invocation, d *daemon) error {
	all, err := d.ServiceProjects(ctx)
	var services []tend.Service
	if err == nil {
		services, err = d.Services(ctx)
	}
	if err != nil {
		return serviceError(err)
	}
	facts := make([]projectFacts, 0, len(all))
	rows := [][]string{{"NAME", "SERVICES", "READY", "FAILED", "FILE"}}
	for _, p := range all {
		f := projectFacts{Name: p.Name, File: p.File}
		for _, s := range services {
			switch {
			case s.Project != p.Name:
				continue
			case s.Ready:
				f.Ready++
			case s.Phase == tend.ServiceFailed:
				f.Failed++
			}
			f.Services++
		}
		facts = append(facts, f)
		rows = append(rows, []string{printable(f.Name), fmt.Sprint(f.Services), fmt.Sprint(f.Ready), fmt.Sprint(f.Failed), printable(f.File)})
	}
	if inv.flags.JSON {
		return printJSON(inv.out, facts)
	}
	return inv.printRows(rows, func(n int) string {
		if facts[n].Failed > 0 {
			return red
		}
		return ""
	})
}

// forget ends what a project has left and forgets it.
func (k *keptServices) forget(ctx context.Context) error {
	all, err := k.d.ServiceProjects(ctx)
	if err != nil {
		return serviceError(err)
	}
	for _, p := range all {
		if p.Name == k.project || k.project == "" {
			if err := k.d.ApplyServices(ctx, tend.ServiceFile{Project: p.Name}); err != nil {
				return serviceError(err)
			}
		}
	}
	return nil
}

// unknownProject says that there is no project of a name.
func unknownProject(name string, all []tend.ServiceProject) error {
	return &keyError{fmt.Sprintf("there is no project %.80q; tend up makes one, and there are %s", name, listed(mapped(all, nameOfProject))),
		process.ErrNotFound}
}
