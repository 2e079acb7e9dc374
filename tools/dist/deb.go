package main

import (
	"bytes"
	"crypto/md5"
	"fmt"
	"time"
)

const (
	summary     = "process runtime for agent sandboxes"
	homepage    = "https://github.com/tend-run/tend"
	maintainer  = "The tend authors <tend-run@users.noreply.github.com>"
	description = "A daemon that spawns, streams, resumes and signals processes for its clients.\nAny of its parts may be killed or upgraded: no process dies, no byte of output\nis lost or doubled, and every exit status is right."
)

// deb is a package for Debian and its descendants, as deb(5) says: an ar of a version, a
// tar with control files and a tar with the files themselves.
func deb(b *build) (string, []byte, error) {
	files, err := b.installed("usr/share/zsh/vendor-completions")
	if err != nil {
		return "", nil, err
	}
	var sums, conffiles bytes.Buffer
	size := 0
	for _, f := range files {
		fmt.Fprintf(&sums, "%x  %s\n", md5.Sum(f.data), f.path)
		if f.config {
			fmt.Fprintf(&conffiles, "/%s\n", f.path)
		}
		size += (len(f.data) + 1023) / 1024
	}
	arch := b.arch()
	if arch == "arm" {
		arch = "armhf"
	}
	var control bytes.Buffer
	fmt.Fprintf(&control, "Package: tend\nVersion: %s\nArchitecture: %s\nMaintainer: %s\nInstalled-Size: %d\nSection: admin\nPriority: optional\nHomepage: %s\nDescription: %s\n", b.packageVersion(), arch, maintainer, size, homepage, summary)
	for line := range bytes.Lines([]byte(description)) {
		fmt.Fprintf(&control, " %s\n", bytes.TrimRight(line, "\n"))
	}
	scripts := []entry{
		{path: "control", mode: 0o644, data: control.Bytes()},
		{path: "md5sums", mode: 0o644, data: sums.Bytes()},
		{path: "conffiles", mode: 0o644, data: conffiles.Bytes()},
	}
	for _, name := range []string{"postinst", "prerm", "postrm"} {
		text, err := b.file("packaging/deb/" + name)
		if err != nil {
			return "", nil, err
		}
		scripts = append(scripts, entry{path: name, mode: 0o755, data: text})
	}
	var out bytes.Buffer
	out.WriteString("!<arch>\n")
	member(&out, "debian-binary", []byte("2.0\n"), b.when)
	for _, part := range []struct {
		name    string
		entries []entry
	}{{"control.tar.gz", sorted(scripts)}, {"data.tar.gz", withParents(files)}} {
		packed, err := tarball("./", part.entries, b.when)
		if err == nil {
			packed, err = gzipped(packed, b.when)
		}
		if err != nil {
			return "", nil, err
		}
		member(&out, part.name, packed, b.when)
	}
	return ".deb", out.Bytes(), nil
}

// member appends a file to an ar(5) archive: a header of 60 bytes, and an even number of
// bytes.
func member(out *bytes.Buffer, name string, data []byte, when time.Time) {
	fmt.Fprintf(out, "%-16s%-12d%-6d%-6d%-8s%-10d`\n", name, when.Unix(), 0, 0, "100644", len(data))
	out.Write(data)
	if len(data)%2 == 1 {
		out.WriteByte('\n')
	}
}
