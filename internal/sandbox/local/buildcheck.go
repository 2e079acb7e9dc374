package local

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/tend-run/tend/internal/lib/lazyregexp"
	"github.com/tend-run/tend/internal/sandbox/dockerfile"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/oci"
)

var templateForm = lazyregexp.New(`^([a-z0-9][a-z0-9_-]{0,127}/)?[a-z0-9][a-z0-9_-]{0,127}$`)

// arguments are how many each kind of step has.
var arguments = map[string][2]int{"COPY": {2, 4}, "RUN": {1, 2}, "WORKDIR": {1, 1}, "USER": {1, 1}, "ENV": {2, driver.MaxEnv}}

func checkBuild(s *driver.BuildSpec) error {
	if !templateForm.MatchString(s.Name) {
		return &driver.InvalidError{Field: "name",
			Reason: fmt.Sprintf("is %.80q; 1 to 128 of [a-z0-9_-] are allowed, with one namespace and '/' before them", s.Name)}
	}
	if err := checkTags(s.Tags); err != nil {
		return err
	}
	if err := s.Size.Validate(); err != nil {
		return err
	}
	if s.Dockerfile != nil {
		return checkDockerfile(s)
	}
	if s.FromImage != "" && (s.From != "" || s.FromDir != "") {
		return &driver.InvalidError{Field: "from_image", Reason: "cannot be given together with a template or a directory; name one of them"}
	}
	if s.FromImage != "" {
		if _, err := oci.ParseReference(s.FromImage); err != nil {
			return err
		}
	}
	if s.From != "" && s.FromDir != "" {
		return &driver.InvalidError{Field: "from", Reason: "is a template and a directory; one of them is enough"}
	}
	if len(s.Steps) > driver.MaxSteps {
		return &driver.InvalidError{Field: "steps", Reason: fmt.Sprintf("has %d entries; the limit is %d", len(s.Steps), driver.MaxSteps)}
	}
	total := len(s.Start) + len(s.Ready)
	for i, step := range s.Steps {
		field := fmt.Sprintf("steps[%d]", i)
		bounds, known := arguments[step.Kind]
		if !known {
			return &driver.InvalidError{Field: field, Reason: fmt.Sprintf("is %.40q; COPY, RUN, WORKDIR, USER and ENV are known", step.Kind)}
		}
		if n := len(step.Args); n < bounds[0] || n > bounds[1] || step.Kind == "ENV" && n%2 != 0 {
			return &driver.InvalidError{Field: field, Reason: fmt.Sprintf("%s has %d arguments", step.Kind, n)}
		}
		for _, a := range step.Args {
			if total += len(a); strings.IndexByte(a, 0) >= 0 {
				return &driver.InvalidError{Field: field, Reason: "has a NUL byte"}
			}
		}
		if step.Kind == "COPY" && (step.Hash == "" || s.Blob == nil) {
			return &driver.InvalidError{Field: field, Reason: "has no files; upload them first"}
		}
	}
	if total > driver.MaxStepBytes || strings.ContainsRune(s.Start+s.Ready, 0) {
		return &driver.InvalidError{Field: "steps", Reason: fmt.Sprintf("has %d bytes of arguments, or a NUL byte; at most %d are allowed",
			total, driver.MaxStepBytes)}
	}
	return nil
}

// checkDockerfile reads a Dockerfile: what is not done is refused before anything runs.
func checkDockerfile(s *driver.BuildSpec) error {
	f := s.Dockerfile
	if s.From != "" || s.FromDir != "" || s.FromImage != "" || len(s.Steps) > 0 || s.Start != "" || s.Ready != "" {
		return &driver.InvalidError{Field: "dockerfile", Reason: "cannot be given together with a base, steps or commands: they are in it"}
	}
	if len(f.Args) > driver.MaxBuildArgs {
		return &driver.InvalidError{Field: "dockerfile.args", Reason: fmt.Sprintf("has %d entries; the limit is %d",
			len(f.Args), driver.MaxBuildArgs)}
	}
	if err := driver.CheckEnv("dockerfile.args", f.Args); err != nil {
		return err
	}
	if len(f.Secrets) > driver.MaxSecrets {
		return &driver.InvalidError{Field: "dockerfile.secrets", Reason: fmt.Sprintf("has %d entries; the limit is %d",
			len(f.Secrets), driver.MaxSecrets)}
	}
	for id, value := range f.Secrets {
		if id == "" || len(id) > driver.MaxName || strings.ContainsRune(id, 0) {
			return &driver.InvalidError{Field: "dockerfile.secrets", Reason: fmt.Sprintf("has the id %.80q; 1 to %d bytes are allowed",
				id, driver.MaxName)}
		}
		if len(value) > driver.MaxSecretBytes {
			return &driver.InvalidError{Field: "dockerfile.secrets", Reason: fmt.Sprintf("has %d bytes for %.80q; the limit is %d", len(value), id,
				driver.MaxSecretBytes)}
		}
	}
	if f.Context != "" && s.Blob == nil {
		return &driver.InvalidError{Field: "dockerfile.context", Reason: "has no files; upload them first"}
	}
	if _, err := dockerfile.Parse(f.Text, dockerfile.Options{Target: f.Target, Args: f.Args}); err != nil {
		return &driver.InvalidError{Field: "dockerfile", Reason: err.Error()}
	}
	return nil
}

// mayCopy returns the directory that a build begins with, without links. One that holds
// the daemon's own files has the tokens of all sandboxes, and the copy itself.
func (d *Driver) mayCopy(dir string) (string, error) {
	if !filepath.IsAbs(dir) {
		return "", &driver.InvalidError{Field: "from_dir", Reason: fmt.Sprintf("is %.200q; an absolute path is needed", dir)}
	}
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", &driver.InvalidError{Field: "from_dir", Reason: err.Error()}
	}
	touches, err := d.touchesState(real)
	if err != nil {
		return "", err
	}
	if touches {
		return "", &driver.InvalidError{Field: "from_dir",
			Reason: fmt.Sprintf("is %.200q, where the daemon's own files are; give another directory, or leave it out to build on the machine's root", dir)}
	}
	return real, nil
}

// roomToCopy is how many bytes a copy into the state directory may have: a twentieth of
// the disk is left free. 0: how much there is is not known.
func roomToCopy(state string) int64 {
	d := spaceOf(state)
	if d.total == 0 {
		return 0
	}
	return max(1, d.total-d.used-d.total/20)
}
