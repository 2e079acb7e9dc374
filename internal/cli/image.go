package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/sdk/go"
)

type imageCmd struct {
	Pull    imagePullCmd    `cmd:"" signals:"int,term,hup" help:"Fetch images from a registry."`
	Import  imageImportCmd  `cmd:"" signals:"int,term,hup" aliases:"load" help:"Read an archive or a directory of an image."`
	Export  imageExportCmd  `cmd:"" signals:"int,term,hup" aliases:"save" help:"Write an archive of an image."`
	Ls      imageLsCmd      `cmd:"" default:"" aliases:"list" help:"List images."`
	Inspect imageInspectCmd `cmd:"" aliases:"info,show" help:"Print all that is known of images, as JSON."`
	Rm      imageRmCmd      `cmd:"" aliases:"remove,delete" help:"Remove images; sandboxes and templates created from them stay."`
	Prune   imagePruneCmd   `cmd:"" help:"Remove images without a name, or all that nothing uses."`
}

// imageFacts is an image as JSON. It is API.
type imageFacts struct {
	ID         string            `json:"id"`
	Digest     string            `json:"digest"` // "": it came from no registry
	Names      []string          `json:"names"`
	Platform   string            `json:"platform"`
	Made       *time.Time        `json:"made"` // null: it does not say
	Added      time.Time         `json:"added"`
	Bytes      int64             `json:"bytes"`
	Entries    int64             `json:"entries"`
	User       string            `json:"user"`
	Cwd        string            `json:"cwd"`
	Entrypoint []string          `json:"entrypoint"`
	Cmd        []string          `json:"cmd"`
	Ports      []string          `json:"ports"`
	Labels     map[string]string `json:"labels"`
	Layers     []string          `json:"layers"`
	LeftOut    []string          `json:"left_out"`
}

// imageInspectFacts has what may hold secrets, too.
type imageInspectFacts struct {
	imageFacts
	Env map[string]string `json:"env"`
}

func imageFactsOf(m *tend.ImageInfo) imageFacts {
	return imageFacts{
		ID: m.ID, Digest: m.Digest, Names: notNull(m.Names), Platform: m.Platform, Made: timeOrNull(m.Made), Added: m.Added.UTC(),
		Bytes: m.Bytes, Entries: m.Entries, User: m.User, Cwd: m.Dir, Entrypoint: notNull(m.Entrypoint), Cmd: notNull(m.Cmd),
		Ports: notNull(m.Ports), Labels: noNull(m.Labels), Layers: notNull(m.Layers), LeftOut: notNull(m.LeftOut),
	}
}

// shortImage is as much of an image's ID as a person needs.
func shortImage(id string) string {
	hex := strings.TrimPrefix(id, "sha256:")
	return printable(hex[:min(len(hex), 12)])
}

// nameOfImage is what a person calls an image.
func nameOfImage(m *tend.ImageInfo) string {
	if len(m.Names) > 0 {
		return m.Names[0]
	}
	return m.ID
}

type imageImportCmd struct {
	Name   string `short:"t" name:"name" aliases:"tag" placeholder:"NAME[:TAG]" help:"The name that it gets. Default: those in the archive."`
	Source string `arg:"" complete:"files" help:"A tar, a directory, or - for a tar on stdin."`
}

func (c *imageImportCmd) Run(ctx context.Context, inv *invocation) error {
	in, done, err := c.open(ctx, inv)
	if err != nil {
		return err
	}
	d, err := inv.connectOrStart(ctx)
	if err != nil {
		return errors.Join(err, done())
	}
	bar := inv.fetching("import "+c.Source, false)
	all, err := d.ImportImage(ctx, &counted{bar: bar, Reader: in, total: sizeOfFile(in)}, c.Name)
	bar.end()
	if err = errors.Join(err, done()); err != nil {
		return about(c.Source, err)
	}
	for i := range all {
		for _, text := range all[i].LeftOut {
			inv.note("%s: %s", nameOfImage(&all[i]), text)
		}
		if err := inv.answer(printJSONLine, imageFactsOf(&all[i]), nameOfImage(&all[i])); err != nil {
			return err
		}
	}
	return nil
}

// sizeOfFile is how many bytes a file has; 0: it is none, or has no end.
func sizeOfFile(in any) int64 {
	if f, ok := in.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
			return info.Size()
		}
	}
	return 0
}

// open returns the archive; done closes it, and says what was wrong with a directory.
func (c *imageImportCmd) open(ctx context.Context, inv *invocation) (in io.Reader, done func() error, err error) {
	if c.Source == "-" {
		return inv.in, func() error { return nil }, nil
	}
	info, err := os.Stat(c.Source)
	if err != nil {
		return nil, nil, err
	}
	if !info.IsDir() {
		f, err := os.Open(c.Source)
		if err != nil {
			return nil, nil, err
		}
		return f, f.Close, nil
	}
	r, w := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		err := packTree(ctx, c.Source, w, func(left int) {
			inv.note("%s: %d sockets, devices or other file systems are left out", c.Source, left)
		})
		w.CloseWithError(err)
		packed <- err
	}()
	return r, func() error {
		r.Close()
		if err := <-packed; !errors.Is(err, io.ErrClosedPipe) {
			return err
		}
		return nil
	}, nil
}

type imageExportCmd struct {
	Output string `short:"o" default:"-" placeholder:"FILE" complete:"files" help:"The archive; - is stdout. Default: -."`
	Name   string `arg:"" name:"image" complete:"image" help:"The image."`
}

func (c *imageExportCmd) Ask(ctx context.Context, inv *invocation, d *daemon) error {
	if c.Output == "-" {
		if _, terminal := terminalOf(inv.out); terminal {
			return usageError("an archive is not for a terminal; send it to a file or a program")
		}
		return c.explained(d.ExportImage(ctx, c.Name, inv.out))
	}
	f, err := os.CreateTemp(filepath.Dir(c.Output), ".tend-export-")
	if err != nil {
		return err
	}
	bar := inv.fetching("export "+c.Name, false)
	err = c.explained(d.ExportImage(ctx, c.Name, &counted{bar: bar, Writer: f}))
	bar.end()
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), c.Output)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return inv.answer(printJSONLine, map[string]string{"name": c.Name, "output": c.Output}, c.Output)
}

func (c *imageExportCmd) explained(err error) error {
	if err != nil {
		err = &keyError{explainImage(c.Name, err), err}
	}
	return err
}

type imagePullCmd struct {
	Quiet bool     `short:"q" help:"Print only the names."`
	Names []string `arg:"" name:"image" help:"The images: [HOST/]PATH[:TAG] or [HOST/]PATH@sha256:DIGEST."`
}

func (c *imagePullCmd) Run(ctx context.Context, inv *invocation) error {
	d, err := inv.connectOrStart(ctx)
	if err != nil {
		return err
	}
	return each(c.Names, func(name string) error {
		m, err := inv.pull(ctx, d, name, c.Quiet)
		if err != nil {
			return err
		}
		return inv.answer(printJSONLine, imageFactsOf(&m), name)
	})
}

// pull fetches an image, and shows how far it is.
func (inv *invocation) pull(ctx context.Context, d *daemon, name string, quiet bool) (tend.ImageInfo, error) {
	bar := inv.fetching(name, quiet)
	say := func(text string) {
		if !quiet && !inv.flags.JSON {
			bar.line(text)
		}
	}
	m, err := d.PullImage(ctx, name, say, bar.progress)
	bar.end()
	if err != nil {
		return m, about(name, err)
	}
	for _, text := range m.LeftOut {
		say(text)
	}
	return m, nil
}

// present has the daemon have an image, as a container engine does before it runs one.
func (inv *invocation) present(ctx context.Context, d *daemon, name string) (tend.ImageInfo, error) {
	m, err := d.Image(ctx, name)
	if errors.Is(err, process.ErrNotFound) {
		return inv.pull(ctx, d, name, false)
	}
	return m, err
}

type imageLsCmd struct {
	Quiet bool `short:"q" help:"Print only names, or the IDs of those without one, one on each line."`
}

func (c *imageLsCmd) Ask(ctx context.Context, inv *invocation, d *daemon) error {
	all, err := d.Images(ctx)
	if err != nil {
		return err
	}
	rows := [][]string{{"NAME", "ID", "SIZE", "LAYERS", "AGE"}}
	for i := range all {
		m := &all[i]
		names := m.Names
		if len(names) == 0 {
			names = []string{"-"}
			if c.Quiet {
				names = []string{m.ID}
			}
		}
		for _, name := range names {
			rows = append(rows, []string{printable(name), shortImage(m.ID), sizeText(m.Bytes), fmt.Sprint(len(m.Layers)), age(time.Since(m.Added))})
		}
	}
	return inv.printList(mapped(all, imageFactsOf), rows, c.Quiet)
}

type imageInspectCmd struct {
	Names []string `arg:"" name:"image" complete:"image" help:"The images."`
}

func (c *imageInspectCmd) Ask(ctx context.Context, inv *invocation, d *daemon) error {
	all := []imageInspectFacts{}
	failed := each(c.Names, func(name string) error {
		m, err := d.Image(ctx, name)
		if err != nil {
			return &keyError{explainImage(name, err), err}
		}
		all = append(all, imageInspectFacts{imageFactsOf(&m), noNull(m.Env)})
		return nil
	})
	if err := printJSON(inv.out, all); err != nil {
		return err
	}
	return failed
}

type imageRmCmd struct {
	Names []string `arg:"" name:"image" complete:"image" help:"The images."`
}

func (c *imageRmCmd) Ask(ctx context.Context, inv *invocation, d *daemon) error {
	return each(c.Names, func(name string) error {
		if _, err := d.RemoveImage(ctx, name); err != nil {
			return &keyError{explainImage(name, err), err}
		}
		return inv.answer(printJSONLine, map[string]string{"name": name}, name)
	})
}

type imagePruneCmd struct {
	All bool `short:"a" help:"Also those with a name, if no sandbox and no template uses them."`
}

func (c *imagePruneCmd) Ask(ctx context.Context, inv *invocation, d *daemon) error {
	gone, err := d.PruneImages(ctx, c.All)
	if err != nil {
		return err
	}
	for i := range gone {
		if err := inv.answer(printJSONLine, imageFactsOf(&gone[i]), nameOfImage(&gone[i])); err != nil {
			return err
		}
	}
	return nil
}

func explainImage(name string, err error) string {
	if errors.Is(err, process.ErrNotFound) {
		return fmt.Sprintf("there is no image %.200q (tend image ls lists them)", name)
	}
	return fmt.Sprintf("%.200s: %v", printable(name), err)
}
