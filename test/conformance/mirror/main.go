//go:build linux

// The command mirror serves a Debian that it makes as images of docker.io, until it is told to end: a registry on this
// machine, for `tend serve --image-mirror`. It is for suites that name public images, on machines without the internet.
//
//	mirror [-release trixie] [-include git,curl] [-root DIR] -url FILE library/ubuntu:22.04 …
//
// With -root it takes the root that is there, or makes it there and leaves it.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/tend-run/tend/internal/support/debian"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("mirror: ")
	release := flag.String("release", "", "of Debian; this machine's if it is empty")
	include := flag.String("include", "", "packages of Debian, with commas between them")
	root := flag.String("root", "", "where the root is, or is made; in a directory of its own if it is empty")
	file := flag.String("url", "", "where to write the address of the registry")
	flag.Parse()
	if *file == "" || flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := serve(ctx, *release, *include, *root, *file, flag.Args()); err != nil {
		log.Fatal(err)
	}
}

func serve(ctx context.Context, release, include, root, file string, names []string) error {
	dir, err := os.MkdirTemp("", "tend-mirror-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	root = cmp.Or(root, filepath.Join(dir, "root"))
	if _, err := os.Stat(root); err != nil {
		if err := debian.Make(root, release, include); err != nil {
			return err
		}
	}
	packed := filepath.Join(dir, "layer.tar")
	if out, err := exec.CommandContext(ctx, "tar", "-C", root, "--numeric-owner", "-cf", packed, ".").CombinedOutput(); err != nil {
		return fmt.Errorf("tar: %w\n%s", err, out)
	}
	layer, err := tarball.LayerFromFile(packed, tarball.WithCompressionLevel(1))
	if err != nil {
		return err
	}
	img, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return err
	}
	said, err := img.ConfigFile()
	if err != nil {
		return err
	}
	c := said.DeepCopy()
	c.OS, c.Architecture = "linux", runtime.GOARCH
	c.Config.Env, c.Config.Cmd = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}, []string{"bash"}
	if img, err = mutate.ConfigFile(img, c); err != nil {
		return err
	}
	blobs := filepath.Join(dir, "blobs")
	if err := os.Mkdir(blobs, 0o700); err != nil {
		return err
	}
	s := httptest.NewServer(registry.New(registry.WithBlobHandler(registry.NewDiskBlobHandler(blobs)), registry.Logger(log.Default())))
	defer s.Close()
	for _, one := range names {
		ref, err := name.NewTag(strings.TrimPrefix(s.URL, "http://")+"/"+one, name.Insecure)
		if err != nil {
			return err
		}
		if err := remote.Write(ref, img, remote.WithContext(ctx)); err != nil {
			return err
		}
	}
	written := file + ".new" // its readers wait for the whole of it
	if err := os.WriteFile(written, []byte(s.URL+"\n"), 0o600); err != nil {
		return err
	}
	if err := os.Rename(written, file); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}
