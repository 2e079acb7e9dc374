package work

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/tend-run/tend/internal/heal/playbook"
	"github.com/tend-run/tend/internal/heal/project"
	"github.com/tend-run/tend/internal/heal/view"
	"github.com/tend-run/tend/internal/lib/atomicfile"
	"github.com/tend-run/tend/internal/lib/lazyregexp"
	"github.com/tend-run/tend/process"
)

// ofInstaller are the names of variables that package managers read.
var ofInstaller = lazyregexp.New(
	`(?i)^(npm|yarn|pnpm|bun|node|corepack|pip|uv|poetry|pipenv|python|ssl|requests|curl)_|^(https?|all|no)_proxy$|^nodedir$`)

// Below a home: what package managers have kept, of which an install has a copy, and what it sees.
var (
	caches = []string{".npm", ".yarn/berry", ".bun/install/cache", ".local/share/pnpm", ".cache/pnpm", ".cache/yarn", ".cache/node",
		".cache/node-gyp", ".cache/pip", ".cache/uv", ".cache/pypoetry"}
	homeSettings = []string{".npmrc", ".yarnrc", ".yarnrc.yml", ".bunfig.toml", ".config/pip", ".config/uv", ".config/pypoetry",
		".local/share/uv", ".local/share/pypoetry", ".local/share/pipx", ".local/pipx"}
)

const unconfined = "programs that packages bring run on the machine itself: "

// installApart carries out installs, which all make one directory, in a view: programs that packages bring
// have neither the rights nor the files of the service. What they have made becomes the project's as a whole.
// done: no is for what is no such install, and where there can be no view, or the service is in a sandbox,
// outside of which they cannot come.
func (w *worker) installApart(ctx context.Context, try int, all []playbook.Action) (said string, done bool, err error) {
	first := all[0]
	if first.Makes == "" || w.sandbox != nil {
		return "", false, nil
	}
	v, hide, err := w.openView(ctx)
	// What is in a project has no install leave its view.
	if no, ok := errors.AsType[*noView](err); ok && !errors.Is(no.err, project.ErrNoCommands) {
		w.note(unconfined + no.Error())
		return "", false, nil
	}
	if err != nil {
		return "", true, err
	}
	home := w.order.Rules.Env["HOME"]
	if home == "" {
		if home, err = homeOf(w.order.Rules.User); err != nil {
			return "", true, err
		}
	}
	if !path.IsAbs(home) || path.Clean(home) == "/" {
		home = "/nonexistent" // as nobody's
	}
	in := &view.Install{Clear: first.Aside, Makes: first.Makes, At: home, Copies: caches, Show: homeSettings,
		Hide: slices.DeleteFunc(hide, func(name string) bool { return path.Base(name) == ".npmrc" })}
	env := w.installEnviron(home)
	hosts := playbook.Registries(first.Makes)
	for name, value := range env {
		hosts = append(hosts, playbook.Hosts(name, []byte(strings.ReplaceAll(value, " ", "\n")))...)
	}
	for _, name := range homeSettings {
		for _, file := range []string{name, name + "/pip.conf", name + "/uv.toml", name + "/config.toml"} {
			if text, err := atomicfile.Read(path.Join(home, file), project.MaxReviewed); err == nil {
				hosts = append(hosts, playbook.Hosts(path.Base(file), text)...)
			}
		}
	}
	for _, one := range v.Pass {
		if one.Remote != "" {
			hosts = append(hosts, one.Remote)
		}
	}
	var lines []string
	for _, a := range all {
		hosts = append(hosts, a.Hosts...)
		lines = append(lines, strings.Join(a.Argv, " "))
		in.Commands = append(in.Commands, process.Spec{Argv: a.Argv, Dir: path.Join(v.Root, a.Path), Env: env, Inherit: process.InheritNone,
			Timeout: installTime, Labels: map[string]string{labelEpisode: w.order.ID, labelCommand: "1"}})
	}
	if !slices.Contains(first.Argv, "--offline") {
		slices.Sort(hosts)
		in.Hosts = slices.Compact(hosts)
	}
	said = strings.Join(lines, "\n")
	if err := w.project.Stage(ctx, try); err != nil {
		return said, true, err
	}
	in.Out, in.Home = project.Staged(v.Root, w.order.ID, try)
	ran, made, err := v.Install(ctx, in)
	if errors.Is(err, view.ErrNone) && errors.Is(err, process.ErrUnsupported) { // such as a way out
		w.note(unconfined + err.Error())
		return "", false, nil
	}
	if err == nil {
		err = succeeded(said, ran, installTime)
	}
	if err == nil && len(made) == 0 {
		err = fmt.Errorf("it has not made %s", first.Makes)
	}
	if err != nil {
		return said, true, fmt.Errorf("in a view of the project, which reaches only [%s]: %w", strings.Join(in.Hosts, ", "), err)
	}
	for _, dir := range made {
		if err := w.project.Swap(ctx, try, dir); err != nil {
			return said, true, err
		}
		said += "\nmade " + dir + " as a whole, in a view of the project"
	}
	return said, true, nil
}

// installEnviron is the environment of an install in a view: that of the service without secrets, and what
// package managers read.
func (w *worker) installEnviron(home string) map[string]string {
	env := map[string]string{}
	for _, one := range w.environment {
		if name, value, _ := strings.Cut(one, "="); ofInstaller.MatchString(name) {
			env[name] = value
		}
	}
	own := w.environ()
	maps.Copy(env, w.bareEnviron())
	for name, value := range own {
		if ofInstaller.MatchString(name) {
			env[name] = value
		}
	}
	env["HOME"] = home
	return env
}

// A model that repairs a manifest or a lock file cannot install by it: a view has no
// network, and of what is installed there nothing is taken over. The books can, and were matched
// before the file could be read.

// installs returns the plan by which what a run in a view has missed is installed.
func (w *worker) installs(ctx context.Context, out view.Outcome) (playbook.Plan, bool, error) {
	ev, err := w.evidence(ctx)
	if err != nil {
		return playbook.Plan{}, false, err
	}
	ev.Signal, ev.Log, ev.Exit = "exit", out.Log, out.Exit
	plans, err := w.project.Match(ctx, ev)
	if err != nil {
		return playbook.Plan{}, false, err
	}
	if i := slices.IndexFunc(plans, playbook.Plan.Installs); i >= 0 {
		return plans[i], true, nil
	}
	return playbook.Plan{}, false, nil
}

// install carries out a book that installs what is missing, if the attempt has changed a
// manifest or a lock file: once, as a part of the attempt, with which it is taken back. It is for a
// service that has failed in a view on the set. No view has a network, so those files become the
// project's first, and no others: what a model wrote runs in views alone until it is proved.
// done: what is missing is installed now, and the rest of the set can be tried again.
func (h *hands) install(ctx context.Context, out view.Outcome) (done bool, err error) {
	w := h.w
	if h.installed || !slices.ContainsFunc(h.set.Paths(), playbook.Manifest) {
		return false, nil
	}
	var files view.Set
	rest := view.Set{Env: h.set.Env}
	for _, c := range h.set.Changes() {
		if !playbook.Manifest(c.Path) || c.Kind == view.Directory {
			rest.Put(c)
			continue
		}
		if err := h.sameSources(ctx, c); err != nil {
			return false, err
		}
		files.Put(c)
	}
	found, err := w.project.Preview(ctx, files.Changes())
	if err == nil {
		err = w.suspect(found, nil, "")
	}
	if err == nil {
		err = h.apply(ctx, &files)
	}
	if err != nil {
		return false, err
	}
	*h.set = rest
	plan, ok, err := w.installs(ctx, out)
	if err != nil || !ok {
		return false, err
	}
	h.installed = true
	h.said = plan.Book + ": " + plan.Why
	w.note("a package manager installs what the attempt has declared: " + h.said)
	var text string
	err = w.own(ctx, func() (err error) {
		text, err = w.carryOut(ctx, h.try, plan)
		return err
	})
	h.said = strings.TrimSpace(h.said + "\n" + text)
	if err != nil {
		// What was installed before is aside by now: only the end of the attempt brings it back.
		h.failed = fmt.Errorf("%s has not succeeded: %w", plan.Book, err)
		return false, h.failed
	}
	return true, w.dropView(ctx)
}

// sameSources refuses a manifest by which a package manager would run what a model wrote, or fetch from
// where it names.
func (h *hands) sameSources(ctx context.Context, c view.Change) error {
	old, _, err := h.w.project.ReadFile(ctx, c.Path, 0, project.MaxReviewed)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	known := slices.Concat(playbook.Registries("node_modules"), playbook.Registries(""), playbook.Hosts(c.Path, old))
	for _, at := range playbook.Hosts(c.Path, c.Data) {
		if !slices.Contains(known, at) {
			return fmt.Errorf("nothing is installed by %s before it is proved, for its address %s is new", c.Path, at)
		}
	}
	if path.Base(c.Path) != "package.json" {
		return nil
	}
	var is struct{ Scripts map[string]json.RawMessage }
	if err := json.Unmarshal(c.Data, &is); err != nil {
		return fmt.Errorf("%s: %w", c.Path, err)
	}
	for name, script := range is.Scripts { // what was there before may be no JSON, which is what was wrong
		if !bytes.Contains(old, script) || !bytes.Contains(old, []byte(strconv.Quote(name))) {
			return fmt.Errorf("nothing is installed by %s before it is proved, for its script %s is new: change its scripts, or its packages",
				c.Path, name)
		}
	}
	return nil
}
