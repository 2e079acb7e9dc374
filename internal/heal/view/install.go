package view

import (
	"context"
	"errors"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/sdk/go"
)

// Install is a run of a package manager, with the programs that packages bring for it.
type Install struct {
	Commands []process.Spec
	// Hosts are what it reaches of the network, as rules of a sandbox.
	Hosts []string
	// Paths below the root: those in Hide it does not see, those in Clear are not there at its begin.
	Hide, Clear []string
	// Makes is the directory that it makes or completes, below the root. Of node_modules it makes
	// those of packages below, too.
	Makes string
	// Out is where copies of what it has made come to, each by the escape of its path. At is its home, of
	// which Home, below the root, is a copy at first. Of its home on the machine it sees Copies and Show.
	Out, Home, At string
	Copies, Show  []string
}

// mostOf bounds the shares of an install: a sandbox has so many.
const mostOf = 32

// outAt is where the directory for copies is in a view.
const outAt = "/mnt/tend-install"

// into adds to a sandbox what an install needs.
func (in *Install) into(spec *tend.SandboxSpec) {
	spec.Timeout, spec.Network.Allow, spec.Network.Deny = 3*lives, in.Hosts, nil
	if len(in.Hosts) == 0 {
		spec.Network.Deny = []string{"*"}
	}
	spec.Shares = append(spec.Shares, tend.SandboxShare{Source: in.Out, Target: outAt})
	if inside(in.At, spec.Shares[0].Source) {
		return // it is in the project
	}
	spec.Shares = append(spec.Shares, tend.SandboxShare{Source: in.Home, Target: in.At, Copy: true})
	for i, name := range append(slices.Clone(in.Show), in.Copies...) {
		at, shown := filepath.Join(in.At, name), i < len(in.Show)
		real, err := filepath.EvalSymlinks(at)
		if err != nil || inside(spec.Shares[0].Source, real) || len(spec.Shares) == mostOf {
			continue
		}
		if st, err := os.Stat(real); err == nil && (shown || st.IsDir()) {
			spec.Shares = append(spec.Shares, tend.SandboxShare{Source: real, Target: at, Copy: !shown, ReadOnly: shown})
		}
	}
}

// Install runs a package manager, and copies the directories that it has made, which it returns by their
// paths below the root. All else that it writes is thrown away. What a program of it could have left runs
// no more when they are copied.
func (v *View) Install(ctx context.Context, in *Install) (ran Ran, made []string, err error) {
	err = v.again(ctx, func() (err error) {
		ran, made, err = v.install(ctx, in)
		return err
	})
	return ran, made, err
}

func (v *View) install(ctx context.Context, in *Install) (ran Ran, made []string, err error) {
	p, err := v.enter(ctx, &Set{}, in.into)
	if err != nil {
		return ran, nil, err
	}
	defer func() { err = errors.Join(err, p.leave(ctx)) }()
	for _, name := range append(slices.Clone(in.Hide), in.Clear...) {
		if err := p.files().Remove(ctx, p.at(name)); err != nil {
			return ran, nil, err
		}
	}
	for _, spec := range in.Commands {
		if ran, err = p.run(ctx, spec); err != nil || !ran.OK() {
			return ran, nil, err
		}
	}
	own := func(argv ...string) (string, error) {
		r, err := p.run(ctx, process.Spec{Argv: argv, Timeout: copyTime})
		if err == nil && !r.OK() {
			err = errors.New("what was installed cannot be copied: " + r.Output)
		}
		return r.Output, err
	}
	found := in.Makes
	if path.Base(found) == "node_modules" {
		at := path.Dir(p.at(found))
		if found, err = own("find", at, "-name", ".git", "-prune", "-o", "-type", "d", "-name", "node_modules", "-prune", "-print"); err != nil {
			return ran, nil, err
		}
	}
	for _, dir := range strings.FieldsFunc(found, func(r rune) bool { return r == '\n' }) {
		rel := strings.TrimPrefix(dir, v.Root+"/")
		changed, err := p.sandbox.Files().Changes(ctx, p.at(rel))
		if len(changed) == 0 && !errors.Is(err, process.ErrLimit) {
			if err != nil && !errors.Is(err, process.ErrNotFound) {
				return ran, nil, err
			}
			continue
		}
		to := path.Join(outAt, url.PathEscape(rel))
		if _, err := own("sh", "-c", `rm -rf "$2" && cp -RPp "$1" "$2"`, "sh", p.at(rel), to); err != nil {
			return ran, nil, err
		}
		made = append(made, rel)
	}
	return ran, made, nil
}

// copyTime bounds the copy of what was installed.
const copyTime = 10 * time.Minute

// OK reports whether a program has ended as it should.
func (r *Ran) OK() bool { return r.Exit != nil && r.Exit.Signal == 0 && r.Exit.Code == 0 }
