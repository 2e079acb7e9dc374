package local

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"

	"github.com/tend-run/tend/internal/core/container"
	"github.com/tend-run/tend/internal/core/embedded"
	"github.com/tend-run/tend/internal/sandbox/layer"
	"github.com/tend-run/tend/internal/sandbox/oci/unpack"
)

// withUser has an image's files have the account user and sudo, as base has them: programs like
// adduser are not in every image, so its files of accounts are written, and its own sudo needs a
// setuid bit, which has no effect. The layer is held for by, beside top.
func (d *Driver) withUser(ctx context.Context, top layer.ID, by string) (layer.ID, error) {
	d.templates.making.Lock() // once
	defer d.templates.making.Unlock()
	program, err := d.sudoSum()
	if err != nil {
		return "", fmt.Errorf("account %s of the image: %w", baseUser, err)
	}
	key := "image user 2 " + program + " " + string(top)
	if id, ok := d.layers.Find(key, by); ok {
		return id, nil
	}
	chain, err := d.layers.Chain(top)
	if err != nil {
		return "", err
	}
	sudo, err := embedded.Carried()
	if err != nil {
		return "", err
	}
	files, err := accountFiles(chain.Dirs, sudo)
	if err != nil || files == nil {
		return top, err
	}
	meta := layer.Meta{Parent: top, Whole: true, Key: key, By: by}
	id, err := d.layers.Unpack(meta, func(dir string, below []string) (_, _ int64, err error) {
		done, err := unpack.Layer(ctx, bytes.NewReader(files), dir, unpack.Options{Below: below})
		return done.Entries, done.Bytes, err
	})
	if err != nil {
		return "", fmt.Errorf("account %s of the image: %w", baseUser, err)
	}
	return id, nil
}

// imageFile is a file of the layer that an image gets.
type imageFile struct {
	header tar.Header
	text   string
}

// accountFiles is a layer, as a tar, with which a chain has the account, and sudo if this tend has
// it; nil: nothing is missing.
func accountFiles(dirs []string, sudo []byte) ([]byte, error) {
	all, err := missingAccount(dirs)
	if len(sudo) > 0 {
		all = append(all, imageFile{tar.Header{Name: "usr/bin/sudo", Mode: 0o755}, string(sudo)})
	}
	if err != nil || len(all) == 0 {
		return nil, err
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range all {
		f.header.Size = int64(len(f.text))
		err = errors.Join(err, w.WriteHeader(&f.header))
		_, written := io.WriteString(w, f.text)
		err = errors.Join(err, written)
	}
	return out.Bytes(), errors.Join(err, w.Close())
}

// missingAccount are the files with which a chain has the account; none: it has it.
func missingAccount(dirs []string) (_ []imageFile, err error) {
	view, err := unpack.OpenView(dirs)
	if err != nil {
		return nil, err
	}
	defer view.Close()
	read := func(name string) string {
		b, e := view.ReadFile(name, maxPasswd)
		if e != nil && !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
		}
		if len(b) > 0 && b[len(b)-1] != '\n' {
			b = append(b, '\n')
		}
		return string(b)
	}
	passwd, group, shadow := read("etc/passwd"), read("etc/group"), read("etc/shadow")
	if err != nil || strings.HasPrefix(passwd, baseUser+":") || strings.Contains(passwd, "\n"+baseUser+":") {
		return nil, err
	}
	if passwd == "" { // nobody at all: as an image of one static program
		passwd, group = "root:x:0:0:root:/root:/bin/sh\n", "root:x:0:\n"+group
	}
	shell := "/bin/bash"
	if _, e := view.ReadFile(shell, 0); errors.Is(e, fs.ErrNotExist) {
		shell = "/bin/sh"
	}
	uid, home := container.FreeID(passwd, group), "/home/"+baseUser
	_, _, shadowGroup := container.Shadow(passwd, group)
	gid, there := groupOf(group)
	if !there {
		gid = uid
		group += fmt.Sprintf("%s:x:%d:\n", baseUser, gid)
	}
	passwd += fmt.Sprintf("%s:x:%d:%d::%s:%s\n", baseUser, uid, gid, home, shell)
	shadow += baseUser + ":*:::::::\n"
	return []imageFile{
		{tar.Header{Name: "etc/passwd", Mode: 0o644}, passwd},
		{tar.Header{Name: "etc/group", Mode: 0o644}, group},
		{tar.Header{Name: "etc/shadow", Mode: 0o640, Gid: shadowGroup}, shadow},
		{tar.Header{Name: home[1:] + "/", Mode: 0o755, Typeflag: tar.TypeDir, Uid: uid, Gid: gid}, ""},
	}, nil
}

// groupOf finds a group of the account's name.
func groupOf(group string) (gid int, there bool) {
	for line := range strings.Lines(group) {
		f := strings.Split(line, ":")
		if len(f) < 3 || f[0] != baseUser {
			continue
		}
		if n, err := strconv.Atoi(f[2]); err == nil && n >= 0 && n < container.IDs {
			return n, true
		}
	}
	return 0, false
}
