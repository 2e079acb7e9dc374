package cli

import (
	"errors"
	"io"
	"io/fs"
	"os"

	"github.com/tend-run/tend/internal/interpreter"
	"github.com/tend-run/tend/sdk/go"
)

// ownTemplate stands for the template that tend makes itself, of sandboxes with a code interpreter.
const ownTemplate = "code-interpreter"

// own returns how tend's own template is built, if that is meant: no directory has the name of it.
func (c *templateBuildCmd) own() (spec tend.TemplateSpec, ok bool, err error) {
	_, err = os.Lstat(c.Dir)
	if c.Dir != ownTemplate || c.File != "" || !errors.Is(err, fs.ErrNotExist) {
		if len(c.Packages)+len(c.NpmPackages) > 0 {
			return spec, false, usageError("--packages and --npm-packages belong to the template " + ownTemplate +
				"; a build file installs its own by RUN")
		}
		return spec, false, nil
	}
	if c.Name != "" && c.Name != interpreter.Template {
		return spec, false, usageError(ownTemplate + " is always named " + interpreter.Template +
			"; for another name write a build file that begins with \"FROM " + interpreter.Template + "\"")
	}
	recipe, err := interpreter.Recipe(c.Packages, c.NpmPackages)
	if bad, ok := errors.AsType[*interpreter.PackageError](err); ok {
		return spec, false, usageError(map[bool]string{false: "--packages: ", true: "--npm-packages: "}[bad.NPM] + bad.Error())
	}
	if err != nil {
		return spec, false, err
	}
	spec = tend.TemplateSpec{Name: recipe.Name, Start: recipe.Start, Ready: recipe.Ready, Force: c.Force}
	for _, step := range recipe.Steps {
		out := tend.TemplateStep{Kind: step.Kind, Args: step.Args}
		if step.Hash != "" {
			out.Files = func(w io.Writer) error {
				r, err := recipe.Blob(step.Hash)
				if err != nil {
					return err
				}
				defer r.Close()
				_, err = io.Copy(w, r)
				return err
			}
		}
		spec.Steps = append(spec.Steps, out)
	}
	return spec, true, c.sized(&spec)
}
