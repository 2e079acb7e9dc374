package langsmith

import (
	"net/http"

	"github.com/tend-run/tend/driver"
)

// dataPlane serves the paths of the boxes: <dataplane_url>/….
func (f *Face) dataPlane() http.Handler {
	mux := http.NewServeMux()
	for path, h := range map[string]func(http.ResponseWriter, *http.Request, driver.Sandbox) error{
		"GET " + dataPath + "{box}/execute/ws":             f.executeWS,
		"POST " + dataPath + "{box}/execute/stream/start":  f.startEvents,
		"POST " + dataPath + "{box}/execute/stream/resume": f.resumeEvents,
		"POST " + dataPath + "{box}/execute":               f.executeHTTP,
		"POST " + dataPath + "{box}/upload":                f.upload,
		"GET " + dataPath + "{box}/download":               f.download, // and HEAD
		"POST " + dataPath + "{box}/glob":                  f.glob,
		"POST " + dataPath + "{box}/grep":                  f.grep,
		"GET " + dataPath + "{box}/tunnel":                 f.tunnel,
	} {
		mux.Handle(path, f.needsKey(f.inBox(h)))
	}
	// Links carry their own token.
	mux.Handle("GET "+dataPath+"{box}/link/{token}", f.byLink(f.followLink))
	mux.Handle(dataPath+"{box}/service/{port}/", f.byLink(f.service))
	mux.Handle(dataPath, f.needsKey(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.refuse(w, noPath(w, r))
	})))
	return mux
}

// byLink serves what carries its own token. Nothing is looked up before the
// token is known to be good.
func (f *Face) byLink(h func(http.ResponseWriter, *http.Request) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := h(w, r); err != nil {
			f.refuse(w, err)
		}
	})
}

// inBox finds the box of the path.
func (f *Face) inBox(h func(http.ResponseWriter, *http.Request, driver.Sandbox) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s, err := f.boxOf(r)
		if err == nil {
			err = h(w, r, s)
		}
		if err != nil {
			f.refuse(w, err)
		}
	})
}

func (f *Face) executeWS(w http.ResponseWriter, r *http.Request, box driver.Sandbox) error {
	info, err := box.Info(r.Context())
	if err != nil {
		return err
	}
	f.serveWS(w, r, box, info)
	return nil
}
