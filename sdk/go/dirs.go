package tend

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"connectrpc.com/connect"

	"github.com/tend-run/tend/internal/tendpb"
)

// UploadDir copies what is in a directory of this machine into one of the server, which is
// created if it is missing. Files replace those of their names; what else is there stays.
// Modes, times and symbolic links are kept; devices, sockets and FIFOs are left out. A
// copy that fails leaves what has arrived. It is repeated when the connection is lost.
func (f *Files) UploadDir(ctx context.Context, local, remote string) error {
	return f.do(ctx, func(c *Client) error {
		return c.repeat(ctx, "upload to "+remote, never, func(*attempts) error {
			r, w := io.Pipe()
			packed := make(chan error, 1)
			go func() {
				err := packDir(local, w)
				packed <- err
				_ = w.CloseWithError(err) // of a pipe
			}()
			err := c.archive(ctx, http.MethodPut, f, remote, r, nil)
			_ = r.CloseWithError(io.ErrClosedPipe) // of a pipe
			if perr := <-packed; perr != nil && !errors.Is(perr, io.ErrClosedPipe) {
				return &callerError{perr}
			}
			return err
		})
	})
}

// DownloadDir copies what is in a directory of the server into one of this machine, which
// is created if it is missing. Files replace those of their names; what else is there
// stays. left says what was left out, a line for each: what could not be read, and
// symbolic links that lead out of the directory. It is repeated when the connection is
// lost.
func (f *Files) DownloadDir(ctx context.Context, remote, local string) (left []string, err error) {
	err = f.do(ctx, func(c *Client) error {
		return c.repeat(ctx, "download "+remote, never, func(*attempts) error {
			return c.archive(ctx, http.MethodGet, f, remote, nil, func(r io.Reader) (err error) {
				left, err = unpackDir(r, local)
				return err
			})
		})
	})
	return left, err
}

// archive sends or reads the archive of a directory.
func (c *Client) archive(ctx context.Context, method string, f *Files, dir string, body io.Reader, read func(io.Reader) error) error {
	ctx, cancel := c.stream(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(c.silence, func() { cancel(errSilent) })
	defer silence.Stop()
	heard := func() { silence.Reset(c.silence) }
	if body != nil {
		body = &heardReader{body, heard}
	}
	resp, err := c.plain(ctx, method, "Archive", url.Values{"path": {dir}, "user": {f.user}}, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if read == nil {
		return nil
	}
	in := &heardReader{resp.Body, heard}
	if err = read(in); err == nil {
		_, err = io.Copy(io.Discard, in) // the end of the answer says that it was whole
	}
	if _, ours := errors.AsType[*callerError](err); err == nil || ours {
		return err
	}
	return causeOf(ctx, connect.NewError(connect.CodeUnavailable, err))
}

// plain makes a request for files by plain HTTP, beside the protocol.
func (c *Client) plain(ctx context.Context, method, call string, query url.Values, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+"/tend.v1.FileService/"+call+"?"+query.Encode(), body)
	if err != nil {
		return nil, err
	}
	if c.sandbox != "" {
		req.Header.Set(tendpb.SandboxHeader, c.sandbox)
	}
	resp, err := c.conns.RoundTrip(req)
	if err != nil {
		if e, ok := errors.AsType[*connect.Error](err); ok {
			return nil, e // a redirect
		}
		return nil, causeOf(ctx, connect.NewError(connect.CodeUnavailable, err))
	}
	if resp.StatusCode/100 != 2 {
		return nil, refusal(resp)
	}
	return resp, nil
}

// heardReader tells of each read.
type heardReader struct {
	io.Reader
	heard func()
}

func (r *heardReader) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	r.heard()
	return n, err
}

func packDir(local string, w io.Writer) error {
	root, err := os.OpenRoot(local)
	if err != nil {
		return err
	}
	defer root.Close()
	out := tar.NewWriter(w)
	err = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		link := ""
		switch {
		case info.Mode()&fs.ModeSymlink != 0:
			if link, err = root.Readlink(name); err != nil {
				return err
			}
		case !info.IsDir() && !info.Mode().IsRegular():
			return nil
		}
		h, err := tar.FileInfoHeader(info, link)
		if err != nil {
			return err
		}
		h.Name, h.Uid, h.Gid, h.Uname, h.Gname = filepath.ToSlash(name), 0, 0, "", ""
		if info.IsDir() {
			h.Name += "/"
		}
		if err := out.WriteHeader(h); err != nil || h.Typeflag != tar.TypeReg {
			return err
		}
		file, err := root.Open(name)
		if err != nil {
			return err
		}
		defer file.Close()
		if _, err = io.CopyN(out, file, h.Size); errors.Is(err, io.EOF) {
			err = fmt.Errorf("%s became shorter while it was read", name)
		}
		return err
	})
	if err != nil {
		return err
	}
	return out.Close()
}

// leftOut is the owner of the entry of an archive that lists what is left out.
const leftOut = "tend-left-out.txt"

// unpackDir unpacks an archive of the server. Its errors about this machine are the caller's.
func unpackDir(r io.Reader, local string) (left []string, err error) {
	if err := os.MkdirAll(local, 0o777); err != nil {
		return nil, &callerError{err}
	}
	root, err := os.OpenRoot(local) // no link leads out of it
	if err != nil {
		return nil, &callerError{err}
	}
	defer root.Close()
	type dir struct {
		name string
		h    *tar.Header
	}
	var dirs []dir
	links := map[string]string{}
	for in := tar.NewReader(r); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if h.Uname == leftOut {
			text, err := io.ReadAll(in)
			if err != nil {
				return nil, err
			}
			left = append(left, strings.Split(strings.TrimSpace(tendpb.CleanText(string(text))), "\n")...)
			continue
		}
		_, name, _ := strings.Cut(strings.TrimSuffix(h.Name, "/"), "/") // below the top
		if name == "" {
			continue
		}
		source := &source{Reader: in}
		out, err := unpackEntry(root, name, h, source)
		switch {
		case source.err != nil:
			return nil, source.err
		case err != nil:
			return nil, &callerError{err}
		case out:
			left = append(left, linkOut(name, h.Linkname))
		case h.Typeflag == tar.TypeDir:
			dirs = append(dirs, dir{name, h})
		case h.Typeflag == tar.TypeSymlink:
			links[name] = h.Linkname
		}
	}
	for name, to := range links { // by another link one may lead out, too
		_, err := root.Stat(name)
		if _, ofSystem := errors.AsType[syscall.Errno](err); err == nil || ofSystem {
			continue
		}
		if err := root.Remove(name); err != nil {
			return nil, &callerError{err}
		}
		left = append(left, linkOut(name, to))
	}
	for _, d := range slices.Backward(dirs) {
		if err := errors.Join(root.Chmod(d.name, mode(d.h)), root.Chtimes(d.name, d.h.ModTime, d.h.ModTime)); err != nil {
			return nil, &callerError{err}
		}
	}
	return left, nil
}

func linkOut(name, to string) string {
	return tendpb.CleanText(name + ": a link to " + to + ", out of the directory")
}

// mode is that of an entry. What is downloaded is nobody else's to change.
func mode(h *tar.Header) fs.FileMode { return h.FileInfo().Mode().Perm() &^ 0o022 }

// unpackEntry writes an entry; out: it is a link that leads out.
func unpackEntry(root *os.Root, name string, h *tar.Header, in io.Reader) (out bool, err error) {
	if h.Typeflag == tar.TypeDir {
		if err := root.MkdirAll(name, 0o700); err != nil {
			return false, err
		}
		return false, root.Chmod(name, 0o700)
	}
	if err := root.MkdirAll(path.Dir(name), 0o777); err != nil {
		return false, err
	}
	if h.Typeflag == tar.TypeSymlink && (path.IsAbs(h.Linkname) || !filepath.IsLocal(path.Join(path.Dir(name), h.Linkname))) {
		return true, nil
	}
	if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	if h.Typeflag == tar.TypeSymlink {
		return false, root.Symlink(h.Linkname, name)
	}
	file, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return false, err
	}
	_, err = io.Copy(file, in)
	if err = errors.Join(err, file.Chmod(mode(h)), file.Close()); err != nil {
		return false, err
	}
	return false, root.Chtimes(name, h.ModTime, h.ModTime)
}
