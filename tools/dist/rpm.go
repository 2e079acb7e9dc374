package main

import (
	"bytes"

	"github.com/google/rpmpack"
)

// rpmArch are the names that rpm has for processors where Go has others.
var rpmArch = map[string]string{"amd64": "x86_64", "arm64": "aarch64"}

// rpm is a package for Fedora and its relatives.
func rpm(b *build) (string, []byte, error) {
	files, err := b.installed("usr/share/zsh/site-functions")
	if err != nil {
		return "", nil, err
	}
	arch := rpmArch[b.arch()]
	if arch == "" {
		arch = b.arch()
	}
	p, err := rpmpack.NewRPM(rpmpack.RPMMetaData{
		Name: "tend", Summary: summary, Description: description, Version: b.packageVersion(), Release: "1", Arch: arch,
		Licence: "Apache-2.0", URL: homepage, Packager: maintainer, Vendor: "tend", BuildHost: "localhost", BuildTime: b.when, Compressor: "gzip",
	})
	if err != nil {
		return "", nil, err
	}
	for _, f := range files {
		kind := rpmpack.GenericFile
		if f.config {
			kind = rpmpack.ConfigFile | rpmpack.NoReplaceFile
		}
		p.AddFile(rpmpack.RPMFile{Name: "/" + f.path, Body: f.data, Mode: uint(f.mode), Owner: "root", Group: "root", MTime: uint32(b.when.Unix()), Type: kind})
	}
	p.AddFile(rpmpack.RPMFile{Name: "/usr/lib/tend", Mode: 0o40755, Owner: "root", Group: "root", MTime: uint32(b.when.Unix())})
	for name, add := range map[string]func(string){"post": p.AddPostin, "preun": p.AddPreun, "postun": p.AddPostun} {
		text, err := b.file("packaging/rpm/" + name)
		if err != nil {
			return "", nil, err
		}
		add(string(text))
	}
	var out bytes.Buffer
	err = p.Write(&out)
	return ".rpm", out.Bytes(), err
}
