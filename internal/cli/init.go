package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tend-run/tend/internal/service/config"
	"github.com/tend-run/tend/internal/service/importer"
)

type initCmd struct {
	Dir   string `arg:"" optional:"" default:"." complete:"dirs" help:"The directory of the project. Default: this one."`
	Print bool   `help:"Print the file instead of writing it."`
}

// Run writes a tend.yaml for the project in a directory.
func (c *initCmd) Run(_ context.Context, inv *invocation) error {
	f, err := importer.Project(os.DirFS(c.Dir))
	if problems, ok := errors.AsType[config.Problems](err); ok {
		return inv.showProblems(problems)
	}
	if errors.Is(err, importer.ErrNoProject) {
		return fmt.Errorf("%w; name another directory, or write a tend.yaml by hand, such as\nservices:\n  web: {command: ./server --port 8080, health: {tcp: 8080}}", err)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", c.Dir, err)
	}
	if c.Print {
		_, err := inv.out.Write(f.YAML())
		return err
	}
	path := filepath.Join(c.Dir, config.FileName)
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s exists already and is not changed; tend init --print shows what would be written", path)
	}
	if err != nil {
		return err
	}
	_, err = file.Write(f.YAML())
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	return inv.answer(printJSONLine, map[string]string{"file": path}, path+" is written; look at it, then tend up")
}
