// Command dist packs one built tend for one platform: an archive, a deb, an rpm and an
// image, each with completions, manual pages and the list of what is linked in.
// scripts/dist builds the programs and calls it.
//
// The same input gives the same bytes: all times are that of the commit, all owners
// root, and nothing of this machine is asked.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// build is what is packed.
type build struct {
	root     string // of the checkout
	out      string
	version  string // v1.2.3, or a commit
	platform string // linux/amd64
	when     time.Time
	tend     []byte
	share    string // with man1 and completions, as tend itself prints them
	sbom     []byte
	license  []byte
	readme   []byte
}

// name is that of the files, without an ending.
func (b *build) name() string { return "tend-" + b.version + "-" + b.os() + "-" + b.arch() }

func (b *build) os() string   { return strings.Split(b.platform, "/")[0] }
func (b *build) arch() string { return strings.Split(b.platform, "/")[1] }

// forms are what can be made, with the function of each. All but archives are of Linux.
var forms = []struct {
	name  string
	linux bool
	make  func(*build) (ending string, data []byte, err error)
}{
	{"archive", false, archive},
	{"deb", true, deb},
	{"rpm", true, rpm},
	{"image", true, image},
	{"sbom", false, func(b *build) (string, []byte, error) { return ".cdx.json", b.sbom, nil }},
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "dist:", err)
		os.Exit(1)
	}
}

func run() error {
	var b build
	tend := flag.String("tend", "", "the built `program`")
	when := flag.Int64("when", 0, "the time of the commit, in `seconds` since 1970")
	only := flag.String("only", "", "comma-separated `forms`; default: all")
	flag.StringVar(&b.root, "root", ".", "the `checkout`")
	flag.StringVar(&b.out, "out", "dist", "the `directory` to write to")
	flag.StringVar(&b.version, "version", "", "the `version`")
	flag.StringVar(&b.platform, "platform", "", "`GOOS/GOARCH` of the program")
	flag.StringVar(&b.share, "share", "", "`directory` with man1/ and completions/")
	flag.Parse()
	if b.version == "" || strings.ContainsAny(b.version, "/ \n") || strings.Count(b.platform, "/") != 1 || b.share == "" || flag.NArg() > 0 {
		return errors.New("give -version, -platform GOOS/GOARCH, -share and -tend; make dist does")
	}
	b.when = time.Unix(*when, 0).UTC()
	var err error
	for path, into := range map[string]*[]byte{*tend: &b.tend, filepath.Join(b.root, "LICENSE"): &b.license, filepath.Join(b.root, "README.md"): &b.readme} {
		if *into, err = os.ReadFile(path); err != nil {
			return err
		}
	}
	if b.sbom, err = sbom(&b); err != nil {
		return fmt.Errorf("list what is linked into %s: %w", *tend, err)
	}
	wanted := strings.FieldsFunc(*only, func(r rune) bool { return r == ',' })
	for _, f := range forms {
		if len(wanted) > 0 && !slices.Contains(wanted, f.name) || f.linux && b.os() != "linux" {
			continue
		}
		ending, data, err := f.make(&b)
		if err != nil {
			return fmt.Errorf("%s of %s: %w", f.name, b.platform, err)
		}
		if err := os.WriteFile(filepath.Join(b.out, b.name()+ending), data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// shared returns the manual pages (man1/NAME.1) and completions (completions/SHELL).
func (b *build) shared(dir string) (map[string][]byte, error) {
	paths, err := filepath.Glob(filepath.Join(b.share, dir, "*"))
	if err != nil || len(paths) == 0 {
		return nil, fmt.Errorf("%s has no %s", b.share, dir)
	}
	out := map[string][]byte{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		if len(bytes.TrimSpace(text)) == 0 {
			return nil, fmt.Errorf("%s is empty", path)
		}
		out[filepath.Base(path)] = text
	}
	return out, nil
}
