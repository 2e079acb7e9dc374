package distant

import (
	"bytes"
	"context"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/tend-run/tend/internal/files"
	"github.com/tend-run/tend/internal/protocol/distant/wire"
)

// maxRead bounds what file_read returns, in bytes: a frame has to hold it.
const maxRead = 48 << 20

// handleFiles finds the handler of a file request.
func (c *client) handleFiles(ctx context.Context, call call, typ string, f *fields) (message, func(), error) {
	handlers := map[string]func(*fileRequest) (message, func(), error){
		"file_read": plain((*fileRequest).read), "file_read_text": plain((*fileRequest).readText),
		"file_write": plain((*fileRequest).write), "file_write_text": plain((*fileRequest).write),
		"file_append": plain((*fileRequest).append), "file_append_text": plain((*fileRequest).append),
		"dir_read": plain((*fileRequest).readDir), "dir_create": plain((*fileRequest).createDir),
		"remove": plain((*fileRequest).remove), "copy": plain((*fileRequest).copy), "rename": plain((*fileRequest).rename),
		"exists": plain((*fileRequest).exists), "metadata": plain((*fileRequest).metadata),
		"set_permissions": plain((*fileRequest).setPermissions),
		"watch":           (*fileRequest).watch, "unwatch": plain((*fileRequest).unwatch),
		"search": (*fileRequest).search, "cancel_search": plain((*fileRequest).cancelSearch),
	}
	handler := handlers[typ]
	if handler == nil || c.face.fs == nil {
		return nil, nil, faultf(kindUnsupported, "%.100s is unsupported", typ)
	}
	return handler(&fileRequest{ctx: ctx, c: c, fs: c.face.fs, call: call, typ: typ, f: f})
}

// fileRequest is one request about files.
type fileRequest struct {
	ctx  context.Context // of the one request
	c    *client
	fs   fileSystem
	call call
	typ  string
	f    *fields
}

// plain is a handler that has nothing to do after its answer.
func plain(h func(*fileRequest) (message, error)) func(*fileRequest) (message, func(), error) {
	return func(r *fileRequest) (message, func(), error) {
		m, err := h(r)
		return m, nil, err
	}
}

// path reads a field that is a path, and makes it absolute.
func (r *fileRequest) path(field string) string { return r.c.face.abs(r.f.str(field)) }

// only ends the fields of a request, and resolves its path for the user.
func (r *fileRequest) only(path string) (string, error) {
	if err := r.f.end(); err != nil {
		return "", err
	}
	return r.fs.Resolve(path)
}

func (r *fileRequest) content() ([]byte, error) {
	path := r.path("path")
	if err := r.f.end(); err != nil {
		return nil, err
	}
	file, info, err := r.fs.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var b bytes.Buffer
	b.Grow(int(min(info.Size(), maxRead)) + bytes.MinRead)
	// Files of /proc have no size before they are read.
	n, err := b.ReadFrom(io.LimitReader(file, maxRead+1))
	if err == nil && n > maxRead {
		err = faultf(kindInvalidInput, "%s is larger than %d MiB; read it with a process, such as cat or dd", path, maxRead>>20)
	}
	return b.Bytes(), err
}

func (r *fileRequest) read() (message, error) {
	b, err := r.content()
	return wire.Map{"type", "blob", "data", b}, err
}

func (r *fileRequest) readText() (message, error) {
	b, err := r.content()
	if err == nil && !utf8.Valid(b) {
		err = faultf(kindInvalidData, "the file is not UTF-8; read it with file_read")
	}
	return wire.Map{"type", "text", "data", string(b)}, err
}

// data is what a request wants written.
func (r *fileRequest) data() (path string, data []byte, err error) {
	path = r.path("path")
	if strings.HasSuffix(r.typ, "_text") {
		data = []byte(r.f.str("text"))
	} else {
		data = r.f.bytes("data")
	}
	return path, data, r.f.end()
}

func (r *fileRequest) write() (message, error) {
	path, data, err := r.data()
	if err != nil {
		return nil, err
	}
	if err := r.needParent(path); err != nil {
		return nil, err
	}
	_, err = r.fs.Write(path, bytes.NewReader(data), nil)
	return okMessage, err
}

func (r *fileRequest) append() (message, error) {
	path, data, err := r.data()
	if err != nil {
		return nil, err
	}
	return okMessage, r.fs.Append(path, data)
}

// needParent refuses a path whose directory is missing: the original makes
// directories only where the request asks for it.
func (r *fileRequest) needParent(path string) error {
	abs, err := r.fs.Resolve(path)
	if err != nil {
		return err
	}
	return r.fs.Do(r.ctx, func(a *files.Actor) error {
		info, err := a.Stat(filepath.Dir(abs))
		if err == nil && !info.IsDir() {
			err = files.ErrNotDir
		}
		return err
	})
}

func (r *fileRequest) createDir() (message, error) {
	path, all := r.path("path"), r.f.flag("all")
	if err := r.f.end(); err != nil {
		return nil, err
	}
	if !all {
		if err := r.needParent(path); err != nil {
			return nil, err
		}
	}
	_, err := r.fs.Mkdir(path)
	if all && errors.Is(err, files.ErrExists) {
		err = nil
	}
	return okMessage, err
}

func (r *fileRequest) remove() (message, error) {
	path, force := r.path("path"), r.f.flag("force")
	if err := r.f.end(); err != nil {
		return nil, err
	}
	info, err := r.fs.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Type == files.TypeDir && info.Target == "" && !force {
		return okMessage, r.fs.RemoveOne(path)
	}
	return okMessage, r.fs.Remove(path)
}

func (r *fileRequest) copy() (message, error) {
	src, dst := r.path("src"), r.path("dst")
	if err := r.f.end(); err != nil {
		return nil, err
	}
	return okMessage, r.fs.Copy(r.ctx, src, dst)
}

func (r *fileRequest) rename() (message, error) {
	src, dst := r.path("src"), r.path("dst")
	if err := r.f.end(); err != nil {
		return nil, err
	}
	if err := r.needParent(dst); err != nil {
		return nil, err
	}
	_, err := r.fs.Move(src, dst)
	return okMessage, err
}

func (r *fileRequest) exists() (message, error) {
	path := r.path("path")
	abs, err := r.only(path)
	if err != nil {
		return nil, err
	}
	// As the original: a link that leads nowhere does not exist.
	err = r.fs.Do(r.ctx, func(a *files.Actor) error {
		_, err := a.Stat(abs)
		return err
	})
	if err != nil && !errors.Is(err, files.ErrNotExist) {
		return nil, err
	}
	return wire.Map{"type", "exists", "value", err == nil}, nil
}
