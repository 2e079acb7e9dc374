package page

import (
	"bytes"
	"compress/gzip"
	"embed"
	"io"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
)

//go:embed dist
var dist embed.FS

// policy lets the page load and call its own origin alone, and run and style by
// nothing that is not one of its files. xterm.js gives its elements rules of
// their own by constructed sheets and the style of elements, by scripts: no policy is about those.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"

// file is one of the page. It is in the program as nearly all browsers take it: packed by gzip.
type file struct {
	name, kind string
	packed     []byte
	plain      func() []byte // for the others; unpacked once
}

// kinds are those of the files that there are.
var kinds = map[string]string{
	".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8",
	".svg": "image/svg+xml", ".txt": "text/plain; charset=utf-8",
}

// built returns the files of the page.
func built() map[string]*file {
	all := map[string]*file{}
	entries, err := dist.ReadDir("dist")
	if err != nil {
		return all
	}
	for _, e := range entries {
		name, packed := strings.CutSuffix(e.Name(), ".gz")
		data, err := dist.ReadFile("dist/" + e.Name())
		if err != nil || !packed {
			continue
		}
		plain := sync.OnceValue(func() []byte { return unpack(data) })
		all[name] = &file{name: name, kind: kinds[path.Ext(name)], packed: data, plain: plain}
	}
	return all
}

// unpack never fails: what is in the program is what build.mjs wrote, and a test reads it all.
func unpack(packed []byte) []byte {
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil
	}
	data, _ := io.ReadAll(r)
	return data
}

// serveFile serves a file, and the first one for every place in the page.
func (p *Page) serveFile(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	name := strings.TrimPrefix(r.URL.Path, "/ui/")
	f := p.files[name]
	// A name of a process or a service may have a dot, too.
	if f == nil && (strings.Contains(name, "/") || !strings.Contains(name, ".")) {
		f = p.files["index.html"]
	}
	if f == nil || f.kind == "" {
		http.NotFound(w, r)
		return
	}
	// The names of the others have a hash of what is in them.
	if f.name == "index.html" || f.name == "licenses.txt" {
		h.Set("Cache-Control", "no-cache")
	} else {
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	h.Set("Content-Type", f.kind)
	h.Set("Vary", "Accept-Encoding")
	var data []byte
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		data = f.packed
		h.Set("Content-Encoding", "gzip")
	} else {
		data = f.plain()
	}
	h.Set("Content-Length", strconv.Itoa(len(data)))
	_, _ = w.Write(data) // the client has left
}
