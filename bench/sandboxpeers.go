//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/support/testbin"
)

// peer is another program that makes a sandbox for each run of a program: with
// namespaces of its own for processes, files, IPC, names and network.
type peer struct {
	name string // of the column
	// argv runs a program in a new sandbox.
	argv func(id string, program ...string) []string
	// end begins to kill everything in the sandbox.
	end   func(ctx context.Context, id string, c *child)
	close func()
	made  int
}

// peerNames are the columns, in their order: of sandboxes, of services, and of clients.
var peerNames = []string{"unshare", "bubblewrap", "runc", "pm2", "supervisord", podman, e2bSDK}

type peerList []*peer

// peers are those that are here, or can be installed as a Debian package.
func peers(ctx context.Context) (all peerList) {
	for _, p := range []struct {
		command, debian string
		make            func(ctx context.Context, path string) *peer
	}{
		{"unshare", "util-linux", unsharePeer}, {"bwrap", "bubblewrap", bubblewrapPeer}, {"runc", "runc", runcPeer},
	} {
		path, err := exec.LookPath(p.command)
		if err != nil {
			out, ierr := exec.CommandContext(ctx, filepath.Join(must(testbin.Root()), "scripts", "install"), p.command+"="+p.debian).CombinedOutput()
			if path, err = exec.LookPath(p.command); err != nil {
				fmt.Fprintf(os.Stderr, "bench: without %s: %v\n%s", p.debian, ierr, out)
				continue
			}
		}
		one := p.make(ctx, path)
		if err := caught(func() { one.first(ctx) }); err != nil {
			fmt.Fprintf(os.Stderr, "bench: without %s, which does not work here: %v\n", p.debian, err)
			one.close()
			continue
		}
		all = append(all, one)
	}
	return all
}

func (all peerList) close() {
	for _, p := range all {
		p.close()
	}
}

// kill ends a sandbox with its first process.
func kill(_ context.Context, _ string, c *child) { check(unix.Kill(c.pid, unix.SIGKILL)) }

func unsharePeer(_ context.Context, path string) *peer {
	return &peer{name: "unshare", end: kill, close: func() {}, argv: func(_ string, program ...string) []string {
		return append([]string{path, "--fork", "--kill-child", "--pid", "--mount", "--ipc", "--uts", "--net", "--mount-proc", "--"}, program...)
	}}
}

// handPeer is what a script does for a root of its own over the machine's: an overlay, /proc, and a change of root.
func handPeer(path string) *peer {
	dir := must(os.MkdirTemp("", "tend-bench-hand-"))
	const script = `mkdir "$0" "$0/up" "$0/work" "$0/root" &&
		mount -t overlay -o "lowerdir=/,upperdir=$0/up,workdir=$0/work" overlay "$0/root" &&
		mount -t proc proc "$0/root/proc" && exec chroot "$0/root" "$@"`
	unshare := unsharePeer(context.Background(), path)
	return &peer{name: "by hand", end: kill, close: func() { _ = os.RemoveAll(dir) }, argv: func(id string, program ...string) []string {
		return unshare.argv(id, append([]string{"/bin/sh", "-c", script, filepath.Join(dir, id)}, program...)...)
	}}
}

func bubblewrapPeer(_ context.Context, path string) *peer {
	return &peer{name: "bubblewrap", end: kill, close: func() {}, argv: func(_ string, program ...string) []string {
		return append([]string{path, "--unshare-all", "--die-with-parent", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--tmpfs", "/run", "--"}, program...)
	}}
}

// runcPeer takes the configuration that `runc spec` writes, with the machine's
// programs as its root.
func runcPeer(ctx context.Context, path string) *peer {
	dir := must(os.MkdirTemp("", "tend-bench-runc-"))
	root := filepath.Join(dir, "rootfs")
	for _, name := range []string{"usr", "proc", "dev", "tmp", "run", "sys", "etc"} {
		check(os.MkdirAll(filepath.Join(root, name), 0o755))
	}
	for _, name := range []string{"bin", "sbin", "lib", "lib64"} {
		check(os.Symlink("usr/"+name, filepath.Join(root, name)))
	}
	cmd := exec.CommandContext(ctx, path, "spec")
	cmd.Dir = dir
	check(cmd.Run())
	var spec map[string]any
	file := filepath.Join(dir, "config.json")
	check(json.Unmarshal(must(os.ReadFile(file)), &spec))
	// Its hooks and mounts of cgroups differ from machine to machine.
	mounts := slices.DeleteFunc(spec["mounts"].([]any), func(m any) bool { return m.(map[string]any)["type"] == "cgroup" })
	spec["mounts"] = append(mounts, map[string]any{"destination": "/usr", "type": "bind", "source": "/usr", "options": []string{"rbind", "ro"}})
	process := spec["process"].(map[string]any)
	process["terminal"] = false
	return &peer{
		name: "runc",
		argv: func(id string, program ...string) []string {
			process["args"] = program
			check(os.WriteFile(file, must(json.Marshal(spec)), 0o600))
			return []string{path, "--root", filepath.Join(dir, "state"), "run", "--bundle", dir, id}
		},
		end: func(ctx context.Context, id string, _ *child) {
			check(exec.CommandContext(ctx, path, "--root", filepath.Join(dir, "state"), "delete", "--force", id).Run())
		},
		close: func() { _ = os.RemoveAll(dir) },
	}
}

// id is another one for each sandbox.
func (p *peer) id() string {
	p.made++
	return fmt.Sprintf("tend-bench-%d-%d", os.Getpid(), p.made)
}

// first times a new sandbox to the first output of echo in it.
func (p *peer) first(context.Context) time.Duration {
	return bareFirst(p.argv(p.id(), echoPath, "x")...)
}

// bareFirst times a program to its first byte of output, and waits for its end.
func bareFirst(argv ...string) time.Duration {
	start := time.Now()
	c := spawn(false, argv...)
	defer also(c.wait)
	var b [1]byte
	if n := must(unix.Read(c.out, b[:])); n != 1 {
		var text [512]byte
		n, _ := unix.Read(c.err, text[:])
		fail("%s wrote nothing: %s", argv[0], strings.TrimSpace(string(text[:max(n, 0)])))
	}
	took := time.Since(start)
	drain(c.out, make([]byte, 512))
	drain(c.err, make([]byte, 512))
	return took
}

// samples of each peer.
type samples map[string][]float64

func (all peerList) samples() samples { return samples{} }

func (s samples) add(p *peer, v float64) { s[p.name] = append(s[p.name], v) }

// to puts the medians into their columns.
func (s samples) to(r row) row {
	for name, v := range s {
		if r.Peers == nil {
			r.Peers = map[string]float64{}
		}
		r.Peers[name] = median(v)
	}
	return r
}
