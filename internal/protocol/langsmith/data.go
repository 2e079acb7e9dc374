package langsmith

import (
	"net/http"

	"github.com/tend-run/tend/internal/sandbox/driver"
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
		mux.Handle(path, f.needsKey(f.handler(f.inBox(h))))
	}
	// Links carry their own token. Nothing is looked up before it is known to be good.
	mux.Handle("GET "+dataPath+"{box}/link/{token}", f.handler(f.followLink))
	mux.Handle(dataPath+"{box}/service/{port}/", f.handler(f.service))
	mux.Handle(dataPath, f.needsKey(f.handler(noPath)))
	return mux
}

// handler answers what h refuses.
func (f *Face) handler(h func(http.ResponseWriter, *http.Request) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := h(w, r); err != nil {
			f.refuse(w, err)
		}
	})
}

// inBox finds the box of the path.
func (f *Face) inBox(h func(http.ResponseWriter, *http.Request, driver.Sandbox) error) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		s, err := f.boxOf(r)
		if err != nil {
			return err
		}
		return h(w, r, s)
	}
}
