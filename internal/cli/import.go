package cli

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/tend-run/tend/internal/service/config"
	"github.com/tend-run/tend/internal/service/importer"
)

// foreignFiles are the names under which tend import looks for a file.
var foreignFiles = []string{"ecosystem.config.js", "ecosystem.config.cjs", "ecosystem.config.mjs", "ecosystem.config.json",
	"ecosystem.config.yaml", "ecosystem.config.yml",
	"process.json", "process-compose.yaml", "process-compose.yml", "Procfile"}

type importCmd struct {
	File string `arg:"" optional:"" complete:"files" help:"The file. Default: the first that exists here of ecosystem.config.*, process.json, process-compose.yaml and Procfile."`
}

// Run prints the file as a tend.yaml.
func (c *importCmd) Run(ctx context.Context, inv *invocation) error {
	path := c.File
	if path == "" {
		for _, name := range foreignFiles {
			if _, err := os.Stat(name); err == nil {
				path = name
				break
			}
		}
	}
	if path == "" {
		return usageError("there is no file of another supervisor here: name one, such as ecosystem.config.cjs, Procfile or process-compose.yaml")
	}
	f, err := inv.readForeign(ctx, path)
	if err != nil {
		return err
	}
	if f == nil {
		return fmt.Errorf("%s is no file of pm2 or process-compose, and no Procfile", path)
	}
	_, err = inv.out.Write(f.YAML())
	return err
}

// readForeign reads a file of another supervisor; nil: the file is not of that kind. What is
// wrong in it is printed.
func (inv *invocation) readForeign(ctx context.Context, path string) (*importer.File, error) {
	f, err := openForeign(ctx, path)
	if problems, ok := errors.AsType[config.Problems](err); ok {
		return nil, inv.showProblems(problems)
	}
	return f, err
}

func openForeign(ctx context.Context, path string) (*importer.File, error) {
	base, dir := filepath.Base(path), filepath.Dir(path)
	exists := func(name string) (file, executable bool) {
		if !filepath.IsAbs(name) {
			name = filepath.Join(dir, name)
		}
		st, err := os.Stat(name)
		return err == nil && st.Mode().IsRegular(), err == nil && st.Mode()&0o111 != 0
	}
	switch filepath.Ext(base) {
	case ".js", ".cjs", ".mjs":
		data, err := evaluate(ctx, path)
		if err != nil {
			return nil, err
		}
		return importer.PM2(path, data, exists)
	}
	data, err := config.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if base == "Procfile" || strings.HasPrefix(base, "Procfile.") {
		dotenv, _ := exists(".env")
		return importer.Procfile(path, data, dotenv)
	}
	if base == config.FileName {
		return nil, nil
	}
	tree, err := config.ReadTree(path, data)
	if err != nil || tree.Map["services"] != nil {
		return nil, nil // the reader of tend.yaml will report it
	}
	switch {
	case tree.Map["apps"] != nil, tree.Map["script"] != nil, tree.IsList:
		return importer.PM2(path, data, exists)
	case tree.Map["processes"] != nil && tree.Map["processes"].IsMap && len(tree.Map["processes"].Keys) > 0:
		return importer.ProcessCompose(path, data)
	}
	return nil, nil
}

// evaluateTime bounds how long a file of JavaScript may take.
const evaluateTime = 30 * time.Second

// evaluateScript prints what a module exports as JSON, after a mark: the module may print,
// too.
const evaluateScript = `const [file, mark] = process.argv.slice(1);
import(require("url").pathToFileURL(file).href).then(m => {
  const all = m.default ?? m;
  require("fs").writeSync(1, mark + JSON.stringify(typeof all === "function" ? all() : all) + mark);
  process.exit(0);
}).catch(e => { console.error(e && e.stack || e); process.exit(1); })`

// evaluate has node read a file of JavaScript, as pm2 does: the file is a program of the
// person who names it.
func evaluate(ctx context.Context, path string) ([]byte, error) {
	full, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(full); err != nil {
		return nil, err
	}
	node, err := exec.LookPath("node")
	if err != nil {
		return nil, fmt.Errorf("%s is JavaScript, and there is no node to read it: %w", path, err)
	}
	ctx, cancel := context.WithTimeout(ctx, evaluateTime)
	defer cancel()
	mark := "\n" + rand.Text() + "\n"
	cmd := exec.CommandContext(ctx, node, "-e", evaluateScript, full, mark)
	cmd.Dir, cmd.WaitDelay = filepath.Dir(full), time.Second
	out, errs := &beginning{most: 4 * config.MaxBytes}, &beginning{most: 16 << 10}
	cmd.Stdout, cmd.Stderr = out, errs
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("it took longer than %v", evaluateTime)
		}
		return nil, fmt.Errorf("node cannot read %s: %w\n%s", path, err, printable(strings.TrimSpace(errs.String())))
	}
	parts := strings.Split(out.String(), mark)
	if len(parts) < 3 || parts[1] == "undefined" {
		return nil, fmt.Errorf("%s exports nothing that can be read as services, or more than %d bytes", path, config.MaxBytes)
	}
	return []byte(parts[1]), nil
}

// beginning keeps the beginning of what is written.
type beginning struct {
	bytes.Buffer
	most int
}

func (l *beginning) Write(p []byte) (int, error) {
	_, _ = l.Buffer.Write(p[:min(len(p), max(0, l.most-l.Len()))])
	return len(p), nil
}
